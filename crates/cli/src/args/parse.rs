//! Arguments of `gpuws parse`.

use super::named;
use clap::Args;
use clap::builder::TypedValueParser;
use gpu_text::Kind;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ParseArgs {
    /// Kind of the text; default: detected.
    #[arg(long, value_parser = kind())]
    pub(crate) kind: Option<Kind>,
    /// Fields, in order, of CSV without a header line.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    pub(crate) fields: Vec<String>,
    /// The file; `-` is standard input.
    pub(crate) file: PathBuf,
}

/// The kinds of text, by their names in JSON.
const KINDS: [(&str, Kind); Kind::ALL.len()] = {
    let mut kinds = [("", Kind::Error); Kind::ALL.len()];
    let mut at = 0;
    while at < kinds.len() {
        kinds[at] = (Kind::ALL[at].name(), Kind::ALL[at]);
        at += 1;
    }
    kinds
};

fn kind() -> impl TypedValueParser<Value = Kind> {
    named(&KINDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_kind_names_match_json() {
        assert_eq!(KINDS.map(|(_, kind)| kind), Kind::ALL);
        for (name, kind) in KINDS {
            assert_eq!(serde_json::to_value(kind).unwrap(), name);
        }
    }
}
