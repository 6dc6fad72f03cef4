//! The lists of `nvidia-smi mig`: profiles and instances, of GPU instances (`-lgip`, `-lgi`) and of
//! compute instances (`-lcip`, `-lci`).
//!
//! They show which instances can be created and which exist, but not how much memory is in use. The
//! title of a list determines its columns; a row has the GPU, the GPU instance, the name, and the
//! columns.

use crate::document::{Document, Kind, Value, keep};
use crate::text::Text;
use std::collections::BTreeMap;

/// The titles, and the columns after the name.
const LISTS: [(&str, &[&str]); 4] = [
    (
        "GPU instance profiles:",
        &["profile_id", "instances", "memory_gib", "p2p", "sm", "dec", "enc"],
    ),
    ("GPU instances:", &["profile_id", "gpu_instance_id", "placement"]),
    ("Compute instance profiles:", &["profile_id", "instances", "sm", "dec", "enc", "ofa"]),
    ("Compute instances:", &["profile_id", "compute_instance_id", "placement"]),
];

/// Parses the lists.
pub(crate) fn parse(text: &Text) -> Document {
    let mut document = Document::new(Kind::Mig);
    let mut columns: &[&str] = &[];
    for (number, line) in text.lines() {
        if let Some(found) = title(line) {
            columns = found;
            let names = ["gpu", "gpu_instance_id", "name"].iter().chain(found);
            document.columns = names.map(|name| (*name).to_owned()).collect();
            document.columns.dedup();
        } else if line.contains("MIG ") && line.trim_start().starts_with('|') {
            let row = row(line, columns);
            if row.is_none_or(|row| !keep(&mut document.rows, row)) {
                document.note_unread(number, line, "truncated or malformed row");
            }
        }
    }
    document
}

/// Returns the columns of the list that a title starts.
fn title(line: &str) -> Option<&'static [&'static str]> {
    let bare = line.trim().trim_matches('|').trim();
    LISTS.iter().find(|(title, _)| *title == bare).map(|(_, columns)| *columns)
}

/// Returns whether a line starts a list: its title, or the border above it.
pub(crate) fn is_start<'a>(line: &str, mut following: impl Iterator<Item = &'a str>) -> bool {
    let is_border = || line.starts_with('+') && line.bytes().all(|b| matches!(b, b'+' | b'-'));
    title(line).is_some()
        || (is_border() && following.next().is_some_and(|next| title(next).is_some()))
}

fn row(line: &str, columns: &[&str]) -> Option<BTreeMap<String, Value>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let (ids, rest) = inner.split_once("MIG ")?;
    let mut row = BTreeMap::new();
    for (column, id) in ["gpu", "gpu_instance_id"].iter().zip(ids.split_whitespace()) {
        row.insert((*column).to_owned(), Value::Integer(id.parse().ok()?));
    }
    let mut words = rest.split_whitespace();
    row.insert("name".to_owned(), Value::Text(format!("MIG {}", words.next()?)));
    for (column, word) in columns.iter().zip(words) {
        let number = word.trim_end_matches('*');
        let value = match (number.parse::<i64>(), number.parse::<f64>()) {
            (Ok(number), _) => Value::Integer(number),
            (_, Ok(number)) if number.is_finite() => Value::Number(number),
            _ => Value::Text(word.to_owned()),
        };
        row.insert((*column).to_owned(), value);
    }
    (!columns.is_empty() && row.contains_key("gpu")).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections;
    use crate::text::clean;
    use proptest::prelude::*;

    const PROFILES: &str = "\
+-------------------------------------------------------------------------------+
| GPU instance profiles:                                                        |
| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                                Free/Total   GiB              CE    JPEG  OFA  |
|===============================================================================|
|   3  MIG 2g.20gb         14     1/3        19.50      No     28     1     0   |
|                                                               2     1     0   |
+-------------------------------------------------------------------------------+
|   3  MIG 2g.20gb+me      20     0/1        19.50      No     28     1     0   |
|                                                               2     1     1   |
+-------------------------------------------------------------------------------+
";
    const INSTANCES: &str = "\
+-------------------------------------------------------+
| Compute instances:                                    |
| GPU     GPU       Name      Profile  Instance  Place  |
|=======================================================|
|   0      5       MIG 1c.3g.20gb   2*      0     0:3   |
+-------------------------------------------------------+
";

    #[test]
    fn profiles_and_instances_are_rows() {
        let document = parse(&clean(PROFILES.as_bytes()));
        assert_eq!((document.rows.len(), document.unread.len()), (2, 0));
        let row = &document.rows[1];
        assert_eq!(row["gpu"], Value::Integer(3));
        assert_eq!(row["name"], Value::Text("MIG 2g.20gb+me".to_owned()));
        assert_eq!(row["instances"], Value::Text("0/1".to_owned()));
        assert_eq!((&row["memory_gib"], &row["sm"]), (&Value::Number(19.5), &Value::Integer(28)));
        let row = &parse(&clean(INSTANCES.as_bytes())).rows[0];
        assert_eq!(
            (&row["gpu_instance_id"], &row["profile_id"]),
            (&Value::Integer(5), &Value::Integer(2))
        );
        assert_eq!(row["placement"], Value::Text("0:3".to_owned()));
        let cut = parse(&clean(&PROFILES.as_bytes()[..480]));
        assert_eq!((cut.rows.len(), cut.unread.len()), (0, 1));
    }

    #[test]
    fn list_is_its_own_section() {
        let kinds = |text: &str| -> Vec<Kind> {
            sections(text.as_bytes()).iter().map(|document| document.kind).collect()
        };
        assert_eq!(kinds(PROFILES), [Kind::Mig]);
        assert_eq!(kinds(&format!("$ nvidia-smi mig -lci\n{INSTANCES}")), [Kind::Mig]);
        let table = "+----------------------------------------------------------------+\n\
                     | NVIDIA-SMI 400.1       Driver Version: 400.1                   |\n";
        assert_eq!(kinds(&format!("{table}{PROFILES}")), [Kind::Table, Kind::Mig]);
        assert_eq!(kinds(&format!("{PROFILES}{table}")), [Kind::Mig, Kind::Table]);
    }

    proptest! {
        #[test]
        fn arbitrary_rows_never_panic(lines in prop::collection::vec("[|+] ?[ -~]{0,30}(MIG )?[ -~]{0,30}\\|?", 0..20)) {
            let text = format!("| GPU instances: |\n{}\n", lines.join("\n"));
            let document = parse(&clean(text.as_bytes()));
            prop_assert!(document.rows.len() + document.unread.len() <= lines.len());
        }
    }
}
