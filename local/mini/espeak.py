"""Speech by espeak-ng with the start of every word.

Library and voices come from the wheel `espeakng-loader`; docs/decisions/packaging.md has the reason.
"""

from __future__ import annotations

import _ctypes
import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import resample_poly

from asrtool.errors import AsrtoolError

SAMPLING_RATE_HZ = 8000
ESPEAK_RATE_HZ = 22050
SYNCHRONOUS = 2
UTF8 = 1
WORD_EVENT = 1
RATE, PITCH = 1, 3
SEPARATED = ord("_") << 8  # phonemes with _ between
AUDIBLE = 0.01  # fraction of full scale; quieter ends of a phrase are cut off


@dataclass(frozen=True)
class Voice:
    """One person: espeak-ng accent file and variant, pitch 0 to 99 and words a minute.

    Accents lie in folders of families: ``zle/ru`` is Russian; one without a folder is Germanic.
    """

    accent: str
    variant: str
    sex: str  # F or M
    pitch: int
    rate_wpm: int


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position_ms", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)  # samples, their number, events up to one of type 0


class Espeak:
    """The library, freshly loaded: use it in a `with` block.

    espeak-ng keeps the phase of flutter and the like in globals that its initialisation does not reset. Loading it
    again and seeding its random numbers makes the same phrases sound the same whatever the process said before.
    """

    def __init__(self, seed: int, rate_hz: int = SAMPLING_RATE_HZ) -> None:
        self._seed = seed
        self._rate_hz = rate_hz
        self._chunks: list[np.ndarray] = []
        self._words: list[tuple[int, float]] = []

    def __enter__(self) -> Espeak:
        try:
            import espeakng_loader

            self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        except (ImportError, OSError) as error:
            what = f"the mini corpus needs espeak-ng of the package espeakng-loader, which cannot be loaded ({error})"
            hint = "pip install 'asrtool[mini]', or set the paths of a corpus (asrtool config paths)"
            raise AsrtoolError(what, hint) from error
        rate_hz = self._library.espeak_Initialize(SYNCHRONOUS, 0, str(espeakng_loader.get_data_path()).encode(), 0)
        assert rate_hz == ESPEAK_RATE_HZ, f"espeak-ng runs at {rate_hz} Hz, expected {ESPEAK_RATE_HZ}"
        self._library.espeak_ng_SetRandSeed(ctypes.c_long(self._seed))
        self._callback = _CALLBACK(self._receive)
        self._library.espeak_SetSynthCallback(self._callback)
        return self

    def __exit__(self, *_: object) -> None:
        self._library.espeak_Terminate()
        _ctypes.dlclose(self._library._handle)

    def speak(self, words: Sequence[str], voice: Voice) -> tuple[np.ndarray, list[float]]:
        """Speak `words`: float32 samples in [-1, 1], and the start of each word in s.

        Silence at both ends is cut off. A word may hold spaces.
        """
        self._chunks.clear()
        self._words.clear()
        accent = voice.accent if "/" in voice.accent else f"gmw/{voice.accent}"
        name = f"{accent}+{voice.variant}"
        failed = self._library.espeak_SetVoiceByName(name.encode())
        assert failed == 0, f"espeak-ng has no voice {name}"
        self._library.espeak_SetParameter(RATE, voice.rate_wpm, 0)
        self._library.espeak_SetParameter(PITCH, voice.pitch, 0)
        text = " ".join(words).encode() + b"\0"
        self._library.espeak_Synth(text, ctypes.c_size_t(len(text)), 0, 0, 0, UTF8, None, None)
        return self._trim(np.concatenate(self._chunks), self._word_starts(words))

    def phonemes(self, word: str) -> str:
        """Return the American English phonemes of `word`, separated by spaces."""
        assert self._library.espeak_SetVoiceByName(b"gmw/en-US") == 0, "espeak-ng has no voice en-US"
        self._library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        text = ctypes.c_char_p(word.encode())
        phonemes = self._library.espeak_TextToPhonemes(ctypes.byref(text), UTF8, SEPARATED)
        return re.sub("[\\s_',]+", " ", phonemes.decode()).strip()

    def _receive(self, wav: ctypes._Pointer[ctypes.c_short], num_samples: int, events: ctypes._Pointer[_Event]) -> int:
        if wav and num_samples > 0:
            self._chunks.append(np.ctypeslib.as_array(wav, (num_samples,)).copy())
        index = 0
        while events[index].type:
            event = events[index]
            if event.type == WORD_EVENT:
                self._words.append((event.text_position - 1, event.audio_position_ms / 1000))
            index += 1
        return 0

    def _word_starts(self, words: Sequence[str]) -> list[float | None]:
        """Start of each word in s; None if espeak-ng joined it to the word before."""
        starts: list[float | None] = []
        position = 0
        for word in words:
            inside = [start for at, start in self._words if position <= at < position + len(word)]
            starts.append(inside[0] if inside else None)
            position += len(word) + 1
        return starts

    def _trim(self, samples: np.ndarray, starts: list[float | None]) -> tuple[np.ndarray, list[float]]:
        speech = resample_poly(samples.astype(np.float32) / 32768, self._rate_hz, ESPEAK_RATE_HZ)
        audible = np.flatnonzero(np.abs(speech) > AUDIBLE * np.abs(speech).max())
        first, last = int(audible[0]), int(audible[-1]) + 1
        speech = speech[first:last].astype(np.float32)
        duration_s = len(speech) / self._rate_hz
        known = [i for i, start in enumerate(starts) if start is not None]
        times = [min(max(starts[i] - first / self._rate_hz, 0.0), duration_s) for i in known]  # type: ignore[operator]
        filled = np.interp(range(len(starts) + 1), [*known, len(starts)], [*times, duration_s])
        filled[0] = 0.0
        return speech, [float(time) for time in np.maximum.accumulate(filled[:-1])]
