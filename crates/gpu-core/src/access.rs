//! The ways in which a process has a file.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// The ways in which a process has a file, with the letters of psmisc's `fuser`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct Access(u8);

impl Access {
    /// `f`: open.
    pub const OPEN: Access = Access(1);
    /// `F`: open for writing (implies [`Access::OPEN`]).
    pub const OPEN_FOR_WRITING: Access = Access(1 | 2);
    /// `r`: root directory.
    pub const ROOT: Access = Access(4);
    /// `c`: current directory.
    pub const CURRENT_DIRECTORY: Access = Access(8);
    /// `e`: executable being run.
    pub const EXECUTABLE: Access = Access(16);
    /// `m`: mapped.
    pub const MAPPED: Access = Access(32);

    /// Returns whether it contains all of `other`.
    pub const fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether it is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Parses fuser's ACCESS column: letters of `fFrcem`, dots between.
    pub fn from_letters(letters: &str) -> Option<Self> {
        letters.chars().try_fold(Access::default(), |access, letter| {
            Some(
                access
                    | match letter {
                        '.' => Access::default(),
                        'f' => Access::OPEN,
                        'F' => Access::OPEN_FOR_WRITING,
                        'r' => Access::ROOT,
                        'c' => Access::CURRENT_DIRECTORY,
                        'e' => Access::EXECUTABLE,
                        'm' => Access::MAPPED,
                        _ => return None,
                    },
            )
        })
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Access(self.0 | other.0)
    }
}

impl BitOrAssign for Access {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Access {
    /// Writes fuser's five columns, `F...m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |flag, letter| if self.contains(flag) { letter } else { '.' };
        let open = letter(Access::OPEN, 'f');
        let open = if self.contains(Access::OPEN_FOR_WRITING) { 'F' } else { open };
        write!(
            f,
            "{open}{}{}{}{}",
            letter(Access::ROOT, 'r'),
            letter(Access::CURRENT_DIRECTORY, 'c'),
            letter(Access::EXECUTABLE, 'e'),
            letter(Access::MAPPED, 'm'),
        )
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Access> for String {
    fn from(access: Access) -> String {
        access.to_string()
    }
}

impl TryFrom<String> for Access {
    type Error = String;
    fn try_from(letters: String) -> Result<Self, String> {
        Access::from_letters(&letters).ok_or_else(|| "invalid fuser access letters".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_letters_round_trip() {
        for letters in ["F...m", "f....", ".rce.", "....m", "....."] {
            assert_eq!(Access::from_letters(letters).unwrap().to_string(), letters);
        }
        assert_eq!(Access::from_letters("Fx"), None);
    }
}
