//! The meaning of a passage: the codes of its phrases.

use super::phrases::{COMPLAINTS, GENERAL, NOT_KILLED, PHRASES, SUBJECTS, SURVIVALS};
use crate::document::ErrorCode;
use crate::work_meter;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// How much of a passage is read, in bytes.
pub(super) const MAX_PASSAGE: usize = 4096;

/// Returns the failure of a whole tool in a line or a passage; empty if it is not a failure text.
pub(crate) fn codes(passage: &str) -> Vec<ErrorCode> {
    let end = passage.floor_char_boundary(MAX_PASSAGE);
    if end < SHORTEST {
        return Vec::new();
    }
    let mut passage = passage[..end].to_lowercase().replace('\u{2019}', "'");
    if passage.contains("oomkilled") {
        NOT_KILLED.iter().for_each(|words| passage = passage.replace(words, ""));
    }
    let found = VOCABULARY.find_in(passage.as_bytes());
    let mut codes = Vec::new();
    if found == Set::default() {
        return codes;
    }
    for (all, code) in &VOCABULARY.phrases {
        if !codes.contains(code) && found.has_all(all) {
            codes.push(*code);
        }
    }
    // A known phrase is more specific than `Other`.
    if codes.iter().any(|code| *code != ErrorCode::Other) {
        codes.retain(|code| *code != ErrorCode::Other);
    }
    for (general, exact) in GENERAL {
        if codes.iter().any(|code| exact.contains(code)) {
            codes.retain(|code| code != general);
        }
    }
    let is_vague = found.has_some(&VOCABULARY.complaints) && found.has_some(&VOCABULARY.subjects);
    if codes.is_empty() && is_vague && !found.has_some(&VOCABULARY.survivals) {
        codes.push(ErrorCode::Other);
    }
    codes
}

/// No shorter passage has a meaning: a complaint has at least four letters, a subject three.
pub(crate) const SHORTEST: usize = 7;

/// A bit set of search phrases, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set([u64; Set::WORDS]);

impl Set {
    const WORDS: usize = 4;

    fn add(&mut self, index: u32) {
        self.0[index as usize / 64] |= 1 << (index % 64);
    }

    fn has(&self, index: u32) -> bool {
        self.0[index as usize / 64] & 1 << (index % 64) != 0
    }

    fn has_all(&self, other: &Set) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| own & other == other)
    }

    fn has_some(&self, other: &Set) -> bool {
        self.0.iter().zip(other.0).any(|(own, other)| own & other != 0)
    }
}

/// All search phrases, so that a passage is scanned once.
struct Vocabulary {
    /// The phrases with their indexes in a set, by first byte.
    by_first: [Vec<(&'static [u8], u32)>; 128],
    phrases: Vec<(Set, ErrorCode)>,
    complaints: Set,
    subjects: Set,
    survivals: Set,
}

static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| {
    let mut by_first = [const { Vec::new() }; 128];
    let mut indexes: BTreeMap<&str, u32> = BTreeMap::new();
    let mut set = |texts: &[&'static str]| {
        let mut set = Set::default();
        for text in texts {
            let next = indexes.len() as u32;
            let index = *indexes.entry(text).or_insert(next);
            if index == next {
                by_first[usize::from(text.as_bytes()[0])].push((text.as_bytes(), index));
            }
            set.add(index);
        }
        set
    };
    let phrases = PHRASES.iter().map(|(texts, code)| (set(texts), *code)).collect();
    let (complaints, subjects) = (set(COMPLAINTS), set(SUBJECTS));
    let survivals = set(SURVIVALS);
    Vocabulary { by_first, phrases, complaints, subjects, survivals }
});

impl Vocabulary {
    /// Returns the set of phrases in a lowercase passage.
    fn find_in(&self, passage: &[u8]) -> Set {
        work_meter::add(passage.len());
        let mut found = Set::default();
        for (at, byte) in passage.iter().enumerate() {
            for (text, index) in self.by_first.get(usize::from(*byte)).into_iter().flatten() {
                if !found.has(*index) && passage[at..].starts_with(text) {
                    found.add(*index);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabulary_fits_bit_set_and_shortest_passage() {
        let texts = VOCABULARY.by_first.iter().flatten().count();
        assert!(texts <= Set::WORDS * 64, "{texts}");
        let shortest = |texts: &[&str]| texts.iter().map(|text| text.len()).min().unwrap();
        assert_eq!(shortest(COMPLAINTS) + shortest(SUBJECTS), SHORTEST);
        for (phrases, _) in PHRASES {
            assert!(phrases.iter().map(|phrase| phrase.len()).sum::<usize>() >= SHORTEST);
        }
    }
}
