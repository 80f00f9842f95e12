"""Template, style and script of the page of a report."""

from __future__ import annotations

from asrtool.score.html import WORD_STYLE

# Colours of figures are those of Okabe and Ito, lighter where the page is dark.
STYLE = (
    """:root {
  color-scheme: light dark;
  --page: #fff; --text: #1a1a1a; --soft: #595959; --line: #d0d0d0; --card: #f6f6f4; --link: #00558a;
  --blue: #0072b2; --orange: #c77700; --pink: #b8578f; --green: #00835f; --grey: #cfcfcf; --dark: #555;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #16181b; --text: #e8e8e6; --soft: #a9adb3; --line: #43474d; --card: #202328; --link: #8cc8f2;
    --blue: #56b4e9; --orange: #e69f00; --pink: #dd8fbd; --green: #2fc49a; --grey: #555a61; --dark: #b8bcc2;
  }
}
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 80rem; padding: 0 1rem 3rem;
  background: var(--page); color: var(--text); overflow-wrap: break-word; }
h1 { font-size: 1.6rem; margin: 1rem 0 .25rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .5rem; }
h4 { font-size: 1rem; margin: 0; }
a { color: var(--link); }
p { margin: .5rem 0; }
.soft, figcaption, small { color: var(--soft); font-weight: normal; }
.caution { border-left: .3rem solid var(--orange); padding: .25rem .75rem; background: var(--card); }
.skip { position: absolute; left: -100rem; }
.skip:focus { position: static; }
nav ul { list-style: none; padding: 0; margin: .5rem 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
nav a { display: inline-block; padding: .25rem 0; }
:focus-visible { outline: 3px solid var(--blue); outline-offset: 2px; }
.scroll { overflow-x: auto; margin: .5rem 0; }
.tall { max-height: 26rem; overflow-y: auto; width: max-content; max-width: 100%; }
table { border-collapse: collapse; width: max-content; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
th { text-align: right; vertical-align: bottom; max-width: 10rem; }
td { white-space: nowrap; }
th.text, td.text { text-align: left; white-space: normal; max-width: 24rem; }
.tall th { position: sticky; top: 0; background: var(--page); }
th button { font: inherit; font-weight: bold; text-align: inherit; color: inherit; background: none; border: 0;
  padding: .2rem 0; cursor: pointer; }
th button::after { content: "\\a0\\2195"; color: var(--soft); }
th[aria-sort=ascending] button::after { content: "\\a0\\2191"; color: inherit; }
th[aria-sort=descending] button::after { content: "\\a0\\2193"; color: inherit; }
.plots { columns: 23rem; column-gap: 2rem; }
figure { margin: 0; padding: .5rem 0 1rem; break-inside: avoid; }
figure svg { display: block; width: 100%; max-width: 30rem; height: auto; fill: currentColor; stroke-linejoin: round; }
pre { overflow-x: auto; background: var(--card); padding: .75rem; font-size: .85rem; }
code { font-size: .9em; background: var(--card); padding: 0 .2em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dt { color: var(--soft); }
dd { margin: 0; min-width: 0; }
summary { cursor: pointer; padding: .25rem 0; }
.controls { display: flex; flex-wrap: wrap; gap: .5rem 1.25rem; align-items: center; padding: .5rem 0; }
.controls[hidden] { display: none; }
.controls label { display: inline-flex; gap: .4rem; align-items: center; max-width: 100%; }
input, select { font: inherit; min-width: 0; padding: .2rem .4rem; }
input[type=checkbox] { width: 1.2rem; height: 1.2rem; }
.headline h2 { margin-top: 0; }
.headline p { font-size: 1.2rem; }
.headline strong { font-size: 2.4rem; }
.headline small { display: block; font-size: 1rem; }
.cards { list-style: none; padding: 0; max-height: max(30rem, 80vh); overflow-y: auto; }
.card { background: var(--card); border-radius: .4rem; padding: .6rem .8rem; margin: .75rem 0; }
.card[hidden], .system[hidden] { display: none; }
.clip { display: flex; gap: .6rem; align-items: center; margin: .4rem 0; }
.clip div { position: relative; flex: 1; min-width: 0; max-width: 40rem; }
.clip img { display: block; width: 100%; height: 5rem; border-radius: .2rem; }
.clip i { position: absolute; top: 0; bottom: 0; left: 0; width: 2px; background: #fff; }
.play { font: inherit; min-width: 4.5rem; min-height: 2.75rem; cursor: pointer; }
.results { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: .5rem 1.5rem; }
.system .words { margin: .1rem 0 0; line-height: 1.3; }
@media (max-width: 30rem) {
  dl { grid-template-columns: 1fr; }
  dd { margin-bottom: .4rem; }
  .clip { flex-wrap: wrap; }
  .clip div { flex-basis: 100%; }
}
@media print { .controls, .play, nav { display: none; } .tall, .cards { max-height: none; } }
"""
    + WORD_STYLE
)

SCRIPT = """"use strict";
const number = text => { const found = parseFloat(text.replaceAll(",", "")); return isNaN(found) ? -Infinity : found; };

// Tables: a button in each heading.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const isText = head.classList.contains("text");
      const before = head.getAttribute("aria-sort");
      const up = before ? before === "descending" : isText;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[column].textContent;
      const order = (a, b) => isText ? key(a).localeCompare(key(b)) : number(key(a)) - number(key(b));
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
    });
  });
}

// Utterances: errors only, search, order, one system or all.
for (const set of document.querySelectorAll(".utterances")) {
  const list = set.querySelector(".cards"), cards = [...list.children];
  const controls = set.querySelector(".controls"), status = set.querySelector("[role=status]");
  const control = name => controls.querySelector(`[name=${name}]`);
  const only = control("only"), search = control("search"), order = control("order"), system = control("system");
  const texts = new Map();
  const textOf = card => {
    if (!texts.has(card)) {
      const lines = [card.querySelector("h4").textContent];
      for (const words of card.querySelectorAll(".words")) {
        for (const side of [1, 2]) {
          const found = [...words.querySelectorAll(`i:nth-child(${side})`)].map(word => word.textContent);
          lines.push(found.filter(Boolean).join(" "));
        }
      }
      texts.set(card, lines.join("\\n").toLowerCase());
    }
    return texts.get(card);
  };
  const show = () => {
    const chosen = system ? system.value : "";
    const isChosen = row => !chosen || row.dataset.systems.split(" ").includes(chosen);
    const rows = card => [...card.querySelectorAll(".system")].filter(isChosen);
    const most = (card, key) => Math.max(0, ...rows(card).map(row => Number(row.dataset[key])));
    const together = row => Number(row.dataset.errors) * (chosen ? 1 : row.dataset.systems.split(" ").length);
    const keys = {
      errors: card => -rows(card).reduce((sum, row) => sum + together(row), 0),
      wer: card => -most(card, "wer"), place: card => Number(card.dataset.place),
      seconds: card => -Number(card.dataset.seconds), speaker: card => card.dataset.speaker,
      spread: card => Math.min(...rows(card).map(row => Number(row.dataset.errors))) - most(card, "errors"),
    };
    const key = keys[order.value], wanted = search.value.trim().toLowerCase();
    const sorted = cards.map(card => [key(card), card]);
    sorted.sort(([a], [b]) => typeof a === "string" ? a.localeCompare(b) : a - b);
    list.append(...sorted.map(([, card]) => card));
    let shown = 0;
    for (const card of cards) {
      card.hidden = only.checked && !most(card, "errors") || !textOf(card).includes(wanted);
      shown += !card.hidden;
      for (const row of card.querySelectorAll(".system")) row.hidden = !isChosen(row);
    }
    status.textContent = `${shown} of ${cards.length} utterances shown`;
  };
  for (const chooser of [only, order, system]) chooser?.addEventListener("change", show);
  search.addEventListener("input", show);
  controls.addEventListener("submit", event => event.preventDefault());
  controls.hidden = false;
  show();
}

// Audio: one at a time.
let playing = null;
for (const clip of document.querySelectorAll(".clip")) {
  const button = clip.querySelector("button"), audio = clip.querySelector("audio"), cursor = clip.querySelector("i");
  const name = button.getAttribute("aria-label").replace(/^Play /, "");
  const label = word => { button.textContent = word; button.setAttribute("aria-label", `${word} ${name}`); };
  const follow = () => {
    cursor.style.left = `${100 * audio.currentTime / (audio.duration || 1)}%`;
    if (!audio.paused) requestAnimationFrame(follow);
  };
  button.hidden = false;
  button.addEventListener("click", () => audio.paused ? audio.play() : audio.pause());
  audio.addEventListener("play", () => {
    if (playing && playing !== audio) playing.pause();
    playing = audio;
    label("Pause");
    follow();
  });
  for (const event of ["pause", "ended"]) audio.addEventListener(event, () => label("Play"));
}
"""

TEMPLATE = """<!DOCTYPE html>
<html lang="en">
{%- macro table(found, caption, tall=false) %}
<div class="scroll{% if tall and found.rows|length > 12 %} tall{% endif %}" tabindex="0" role="region"
 aria-label="{{ caption }}">
<table class="{% if found.rows|length > 1 %}sortable{% endif %}">
<caption>{{ caption }}{% if found.note %} ({{ found.note }}){% endif %}</caption>
<thead><tr>
{%- for name in found.head %}
<th scope="col"{% if loop.index0 in found.text %} class="text"{% endif %}>{{ name }}</th>
{%- endfor %}
</tr></thead>
<tbody>
{%- for row in found.rows %}
<tr>{% for cell in row %}<td{% if loop.index0 in found.text %} class="text"{% endif %}>{{ cell }}</td>{% endfor %}</tr>
{%- endfor %}
</tbody>
</table></div>
{%- endmacro %}
{%- macro plots(pictures) %}
{%- if pictures %}
<div class="plots">
{%- for picture in pictures %}
<figure id="plot-{{ picture.name }}">
<div role="img" aria-label="{{ picture.alt }}">{{ picture.svg }}</div>
<figcaption>{{ picture.title }}</figcaption></figure>
{%- endfor %}
</div>
{%- endif %}
{%- endmacro %}
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{{ policy }}">
<title>{{ page.title }}</title>
<style>
{{ style }}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the error rates</a>
<header>
<h1>{{ page.title }}</h1>
<div class="results">
{%- for run in page.runs %}
<section class="card headline" aria-label="Summary of {{ run.name }}">
{%- if page.runs|length > 1 %}
<h2>{{ run.name }}</h2>
{%- endif %}
{%- for best in run.best %}
<p><strong>{{ best.wer }} %</strong> word error rate on {{ best.title }}
<small>by {{ best.method }}; 95 % interval {{ best.interval }}{{ best.parts }}</small></p>
{%- endfor %}
<dl>
{%- for name, value in run.headline %}<dt>{{ name }}</dt><dd>{{ value }}</dd>{% endfor %}
</dl>
</section>
{%- endfor %}
</div>
{%- for title, found in page.published.items() %}
{{- table(found, "Published rates on " ~ title) }}
{%- endfor %}
<nav aria-label="Contents"><h2>Contents</h2><ul>
{%- for part in page.sets %}<li><a href="#set-{{ loop.index }}">error rates on {{ part.name }}</a></li>{% endfor %}
<li><a href="#training">training</a></li>
{%- for part in page.sets %}
<li><a href="#utterances-{{ loop.index }}">worst utterances of {{ part.name }}</a></li>
{%- endfor %}
<li><a href="#data">data</a></li><li><a href="#settings">settings</a></li>
</ul></nav>
</header>
<main id="main">
{%- for part in page.sets %}
<section aria-labelledby="set-{{ loop.index }}">
<h2 id="set-{{ loop.index }}">{{ part.title }}</h2>
{{- table(part.rates, "Word error rate on " ~ part.name) }}
<p class="soft">{{ part.interval }}</p>
{%- if part.caution %}
<p class="caution" role="note">{{ part.caution }}</p>
{%- endif %}
{%- if part.comparison %}
{{- table(part.comparison, "Systems compared in pairs on " ~ part.name) }}
<p class="soft">{{ page.chance }}</p>
{%- endif %}
{{- plots(part.plots) }}
{%- if part.labels.rows %}
{{- table(part.labels, "By label, " ~ part.name) }}
{%- endif %}
{{- table(part.speakers, "By speaker, " ~ part.name, true) }}
{%- if part.confusions.rows %}
{{- table(part.confusions, "Errors by frequency, " ~ part.name, true) }}
{%- endif %}
</section>
{%- endfor %}
<section aria-labelledby="training">
<h2 id="training">Training</h2>
{{- plots(page.plots) }}
{%- for run in page.runs %}
{%- if page.runs|length > 1 %}
<h3>{{ run.name }}</h3>
{%- endif %}
{%- for fact in run.training %}
<p{% if fact.startswith("**") %} class="caution" role="note"{% endif %}>{{ inline(fact) }}</p>
{%- endfor %}
{{- plots(run.plots) }}
{%- for title, found in run.tables.items() %}
{{- table(found, title ~ ", " ~ run.name) }}
{%- endfor %}
<dl>
{%- for name, value in run.facts %}<dt>{{ name }}</dt><dd>{{ value }}</dd>{% endfor %}
</dl>
<pre tabindex="0" aria-label="Command of {{ run.name }}">{{ run.command }}</pre>
{%- endfor %}
</section>
{%- for part in page.sets %}
<section class="utterances" aria-labelledby="utterances-{{ loop.index }}">
<h2 id="utterances-{{ loop.index }}">Worst utterances of {{ part.name }}</h2>
<p>{{ part.worst|length }} of {{ part.num_utterances }}, those with most errors. Reference over hypothesis:
<span class="words"><span class="S">S substituted</span><span class="D">D deleted</span>
<span class="I">I inserted</span></span></p>
<form class="controls" hidden>
<label><input type="checkbox" name="only"> errors only</label>
<label>search <input type="search" name="search" placeholder="words, speaker, recording"></label>
<label>order <select name="order">
<option value="errors">most errors</option><option value="wer">highest error rate</option>
{%- if part.systems|length > 1 %}<option value="spread">largest difference</option>{% endif %}
<option value="seconds">longest</option><option value="speaker">by speaker</option>
<option value="place">as in the set</option></select></label>
{%- if part.systems|length > 1 %}
<label>system <select name="system"><option value="">all</option>
{%- for name in part.systems %}<option value="{{ loop.index0 }}">{{ name }}</option>{% endfor %}</select></label>
{%- endif %}
<span role="status"></span>
</form>
<ol class="cards" tabindex="0" aria-label="Worst utterances of {{ part.name }}">
{%- for utterance in part.worst %}
<li class="card" data-place="{{ utterance.place }}" data-seconds="{{ utterance.duration_s or 0 }}"
 data-speaker="{{ utterance.first.speaker }}">
<h4>{{ utterance.first.id }} <small>{{ utterance.where }}</small></h4>
{%- if utterance.clip %}
<div class="clip"><button type="button" class="play" aria-label="Play {{ utterance.first.id }}" hidden>Play</button>
<div><img src="{{ utterance.clip.picture }}" alt="Spectrogram of {{ utterance.first.id }}, \
{{ '%.1f'|format(utterance.clip.seconds) }} s, 0 to {{ '%g'|format(utterance.clip.max_hz / 1000) }} kHz"><i></i></div>
<audio preload="none" src="{{ utterance.clip.audio }}"></audio></div>
{%- if utterance.clip.seconds < utterance.clip.whole_s %}
<small>the first {{ '%.0f'|format(utterance.clip.seconds) }} of {{ '%.0f'|format(utterance.clip.whole_s) }} s</small>
{%- endif %}
{%- endif %}
<div class="results">
{%- for numbers, segment in utterance.results %}
{%- set counts = segment.alignment.counts %}
<div class="system" data-systems="{{ numbers|join(' ') }}" data-errors="{{ counts.err }}" \
data-wer="{{ '%.4f'|format(counts.err / (counts.num_words or 1)) }}">
<small>
{%- for number in numbers %}{{ part.systems[number] }}{{ '' if loop.last else '; ' }}{% endfor %}:
{{ plural(counts.err, "error") }} in {{ plural(counts.num_words, "word") }}</small>
<p class="words" dir="auto" role="img" aria-label="{{ describe_alignment(segment.alignment) }}">
{{- words(segment.alignment) }}</p></div>
{%- endfor %}
</div>
</li>
{%- endfor %}
</ol>
</section>
{%- endfor %}
<section aria-labelledby="data">
<h2 id="data">Data</h2>
{%- for data in page.data %}
{%- if page.data|length > 1 %}
<h3>{{ data.name }}</h3>
{%- endif %}
{{- table(data.sets, "Sets of " ~ data.name) }}
{%- for sentence in data.words %}
<p class="soft">{{ inline(sentence) }}</p>
{%- endfor %}
{{- plots(data.plots) }}
{%- endfor %}
</section>
<section aria-labelledby="settings">
<h2 id="settings">Settings</h2>
{%- if page.settings %}
{{- table(page.settings, "Settings that differ") }}
{%- endif %}
{%- for run in page.runs %}
<details><summary>all settings of {{ run.name }}</summary>
<pre tabindex="0" aria-label="Settings of {{ run.name }}">{{ run.settings }}</pre></details>
{%- endfor %}
</section>
</main>
<footer><p class="soft">Made by asrtool report. The page holds all that it shows
{%- if page.has_audio %}, audio of the worst utterances too{% endif %}, and loads nothing.</p></footer>
<script>
{{ script }}</script>
</body>
</html>
"""
