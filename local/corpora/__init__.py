"""Corpora that data.train, data.dev and data.test can name.

- an4: CMU AN4
- swbd, fisher: Switchboard-1, Fisher English, and both as one corpus; calls: what they share
- nist: test sets of telephone conversations from NIST's evaluations
- public: LibriSpeech, MLS, TED-LIUM, The People's Speech, Common Voice
- own: custom data in any of the layouts
"""

# name -> module:class
CORPORA = {
    name: f"asrtool.local.corpora.{place}"
    for name, place in {
        "an4": "an4:Corpus",
        "commonvoice": "public:CommonVoice",
        "fisher": "fisher:Corpus",
        "fisher_swbd": "fisher:FisherSwbd",
        "hub5": "nist:Hub5",
        "hub5_01": "nist:Hub5Of2001",
        "librispeech": "public:LibriSpeech",
        "mls": "public:Mls",
        "own": "own:Corpus",
        "peoples_speech": "public:PeoplesSpeech",
        "rt03": "nist:Rt03",
        "swbd": "swbd:Corpus",
        "tedlium": "public:TedLium",
    }.items()
}
