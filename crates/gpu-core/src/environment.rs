//! The environment of a process.

/// The variables that a process was started with, unless it has overwritten them: hostile text, and
/// often secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Name and value of each, in the order of the process.
    pub variables: Vec<(String, String)>,
    /// The environment is longer than what was read.
    pub is_cut: bool,
}

impl Environment {
    /// The most bytes of an environment that are read.
    pub const LIMIT: usize = 128 << 10;

    /// Parses an environment as the kernel shows it: `NAME=value`, each ended by a zero byte.
    /// Invalid UTF-8 is replaced. Everything after [`LIMIT`](Environment::LIMIT) bytes is left out.
    pub fn parse(bytes: &[u8]) -> Self {
        let read = bytes.get(..Environment::LIMIT).unwrap_or(bytes);
        let entries = read.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
        let variables = entries.map(|entry| {
            let text = String::from_utf8_lossy(entry);
            match text.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (text.into_owned(), String::new()),
            }
        });
        Environment { variables: variables.collect(), is_cut: bytes.len() > read.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_keep_order_and_hostile_bytes_become_text() {
        let bytes = b"A=1\0B=x=y\0\0NOTHING\0=\0\xff=\xfe";
        let expected =
            [("A", "1"), ("B", "x=y"), ("NOTHING", ""), ("", ""), ("\u{fffd}", "\u{fffd}")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let parsed = Environment::parse(bytes);
        assert_eq!((parsed.variables, parsed.is_cut), (expected.to_vec(), false));
    }

    #[test]
    fn long_environment_is_cut() {
        let parsed = Environment::parse(&vec![b'a'; Environment::LIMIT + 1]);
        assert!(parsed.is_cut && parsed.variables[0].0.len() == Environment::LIMIT);
        assert!(!Environment::parse(&vec![b'a'; Environment::LIMIT]).is_cut);
    }
}
