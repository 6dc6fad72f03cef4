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
const KINDS: [(&str, Kind); 13] = [
    ("table", Kind::Table),
    ("q", Kind::Q),
    ("xml", Kind::Xml),
    ("query_gpu", Kind::QueryGpu),
    ("query_apps", Kind::QueryApps),
    ("list", Kind::List),
    ("pmon", Kind::Pmon),
    ("dmon", Kind::Dmon),
    ("topo", Kind::Topo),
    ("p2p", Kind::P2p),
    ("fuser", Kind::Fuser),
    ("lsof", Kind::Lsof),
    ("error", Kind::Error),
];

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
