//! `nvidia-smi pmon` and `dmon`: a `#` line of names, a `#` line of units, rows of cells.
//!
//! Cells are split at blanks, not at the columns of the header, because nvidia-smi's own widths do
//! not always agree. Only the last column, a process name, may contain blanks.

use crate::document::{Document, Kind, Value};
use crate::failure;
use crate::field;
use crate::text::Text;

/// The maximum number of columns, and the maximum length of their names; the widest known output
/// has 60 columns.
const MAX_COLUMNS: usize = 128;
const MAX_NAME: usize = 64;

/// Known columns; every output has at least one of them.
const COLUMNS: [&str; 19] = [
    "pid", "type", "sm", "mem", "enc", "dec", "fb", "bar1", "ccpm", "pwr", "temp", "gtemp",
    "mtemp", "mclk", "pclk", "pviol", "sbecc", "rxpci", "command",
];

/// The maximum number of cells kept.
pub(crate) const MAX_CELLS: usize = 1_000_000;

/// Parses the output; `reported` has the column names if the text has no header.
pub(crate) fn parse(text: &Text, kind: Kind, reported: Option<&[String]>) -> Document {
    let mut document = Document::new(kind);
    let mut columns: Vec<String> = reported.unwrap_or_default().to_vec();
    columns.truncate(MAX_COLUMNS);
    document.columns.clone_from(&columns);
    let mut cells = 0;
    let open_line = text.open_line();
    for (number, line) in text.lines() {
        let line = field::without_remark(line.trim());
        if line.is_empty() || is_units(line) {
            continue;
        }
        if let Some(names) = header(line) {
            if document.columns.is_empty() {
                document.columns.clone_from(&names);
            }
            columns = names;
            continue;
        }
        if cells >= MAX_CELLS || document.rows.len() >= Document::MAX_ROWS {
            document.note_unread(number, line, "row limit exceeded");
            continue;
        }
        let mut row = line;
        if open_line == Some(number) && line.split_whitespace().count() < columns.len() {
            // A cell cut in the middle of a number would show a wrong number.
            row = line.rsplit_once(char::is_whitespace).map_or(line, |(whole, _)| whole.trim_end());
        }
        let row = read(row, &columns);
        if row.is_empty() {
            if !failure::note(&mut document, line) {
                document.note_unread(number, line, "not a row of the columns above");
            }
        } else {
            cells += columns.len();
            document.rows.push(row.into_iter().collect());
        }
    }
    document
}

/// Returns the kind with the header `line`.
pub(crate) fn kind_of_header(line: &str) -> Option<Kind> {
    let names = header(line.trim())?;
    Some(if names.iter().any(|name| name == "pid") { Kind::Pmon } else { Kind::Dmon })
}

/// Parses the line of names, `# gpu pwr …`, with optional `Date` and `Time` before.
fn header(line: &str) -> Option<Vec<String>> {
    let names: Vec<&str> = line.strip_prefix('#')?.split_whitespace().take(MAX_COLUMNS).collect();
    let gpu = names.iter().take(3).position(|name| *name == "gpu")?;
    let is_name = |name: &&str| {
        name.len() <= MAX_NAME
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-/".contains(c))
    };
    // A heading in prose can start in the same way, so a second known column is required.
    let known = names.get(gpu + 1..)?.iter().any(|name| COLUMNS.contains(name));
    (known && names.iter().all(is_name)).then(|| names.into_iter().map(str::to_owned).collect())
}

/// Returns whether a line is the one of units, `# Idx W …`.
fn is_units(line: &str) -> bool {
    line.starts_with('#') && line.split_whitespace().take(4).any(|word| word == "Idx")
}

/// Parses a row; missing cells of a truncated row are `Null`. Empty if the line is not a row of
/// `columns`.
fn read(line: &str, columns: &[String]) -> Vec<(String, Value)> {
    let mut row = Vec::new();
    let mut rest = line;
    for (at, column) in columns.iter().enumerate() {
        let is_last = at + 1 == columns.len();
        let (cell, after) = match rest.split_once(char::is_whitespace) {
            Some((cell, after)) if !is_last => (cell, after.trim_start()),
            _ => (rest, ""),
        };
        let value = value(cell, is_name(column) || column == "type");
        if column.eq_ignore_ascii_case("gpu") && !matches!(value, Value::Integer(_)) {
            return Vec::new();
        }
        row.push((column.clone(), value));
        rest = after;
    }
    // Extra cells are allowed only in a name; otherwise the row belongs to other columns.
    let surplus = columns.last().is_some_and(|last| !is_name(last))
        && line.split_whitespace().nth(columns.len()).is_some();
    if surplus { Vec::new() } else { row }
}

fn is_name(column: &str) -> bool {
    column == "command" || column == "name"
}

/// Types a cell; `is_text`: it is kept as printed.
pub(crate) fn value(cell: &str, is_text: bool) -> Value {
    let cell = cell.trim();
    if cell.is_empty() || cell == "-" || (!is_text && field::absent(cell).is_some()) {
        return Value::Null;
    }
    if !is_text {
        if let Ok(whole) = cell.parse() {
            return Value::Integer(whole);
        }
        if let Some(number) = cell.parse::<f64>().ok().filter(|number| number.is_finite()) {
            return Value::Number(number);
        }
    }
    Value::Text(cell.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use proptest::prelude::*;

    const PMON: &str = "# gpu    pid  type    sm    fb   command\n\
                        # Idx      #   C/G     %    MB   name\n";

    fn pmon(rows: &str) -> Document {
        parse(&clean(format!("{PMON}{rows}").as_bytes()), Kind::Pmon, None)
    }

    #[test]
    fn row_values_are_typed_and_dash_is_null() {
        let document = pmon("    0   4242     C    83     -   my tool.exe   \n");
        assert_eq!(document.columns, ["gpu", "pid", "type", "sm", "fb", "command"]);
        let row = &document.rows[0];
        assert_eq!(row["pid"], Value::Integer(4242));
        assert_eq!(row["type"], Value::Text("C".into()));
        assert_eq!(row["fb"], Value::Null);
        assert_eq!(row["command"], Value::Text("my tool.exe".into()));
    }

    #[test]
    fn truncated_row_keeps_its_cells() {
        let document = pmon("    0   4242     C\n");
        assert_eq!(document.rows[0]["type"], Value::Text("C".into()));
        assert_eq!(document.rows[0]["command"], Value::Null);
        let open = pmon("    0   4242     C    8");
        assert_eq!(
            (&open.rows[0]["pid"], &open.rows[0]["sm"]),
            (&Value::Integer(4242), &Value::Null)
        );
    }

    #[test]
    fn numeric_command_stays_text() {
        assert_eq!(pmon("0 1 C 2 3 007\n").rows[0]["command"], Value::Text("007".into()));
    }

    #[test]
    fn timestamps_and_repeated_headers_are_parsed() {
        let head = "#Date       Time        gpu    pwr  gtemp\n#YYYYMMDD   HH:MM:SS    Idx      W      C\n";
        let row = " 20260101   10:00:00      1   12.5   ERR!\n";
        let text = clean(format!("{head}{row}{head}{row}").as_bytes());
        assert_eq!(kind_of_header("#Date       Time        gpu    pwr"), Some(Kind::Dmon));
        let document = parse(&text, Kind::Dmon, None);
        assert_eq!(document.rows.len(), 2);
        assert_eq!(document.rows[1]["Time"], Value::Text("10:00:00".into()));
        assert_eq!(document.rows[1]["pwr"], Value::Number(12.5));
        assert_eq!(document.rows[1]["gtemp"], Value::Null);
        assert_eq!(document.unread, []);
    }

    #[test]
    fn other_lines_are_unread() {
        let document = pmon("Process monitoring goes on\n0 1 C 2 3 x\n");
        assert_eq!((document.rows.len(), document.unread.len()), (1, 1));
        let text = clean(b"# gpu  pwr\n0 1 2 3\n");
        assert_eq!(parse(&text, Kind::Dmon, None).unread.len(), 1);
    }

    #[test]
    fn headers_are_distinguished_from_comments() {
        for (line, kind) in [
            ("# gpu pid", Some(Kind::Pmon)),
            ("#gpu sm", Some(Kind::Dmon)),
            ("  # Date Time gpu rxpci_a rxpci", Some(Kind::Dmon)),
            ("# a b c gpu sm", None),
            ("# gpu", None),
            ("# gpu sm (percent)", None),
            ("# gpu other words", None),
            ("gpu sm", None),
        ] {
            assert_eq!(kind_of_header(line), kind, "{line}");
        }
        let long = |length: usize| format!("# gpu sm {}", "a".repeat(length));
        assert_eq!(kind_of_header(&long(MAX_NAME)), Some(Kind::Dmon));
        assert_eq!(kind_of_header(&long(MAX_NAME + 1)), None);
    }

    #[test]
    fn reported_columns_replace_header_and_are_bounded() {
        let names = |count: usize| -> Vec<String> {
            (0..count).map(|n| if n == 0 { "GPU".to_owned() } else { format!("c{n}") }).collect()
        };
        let text = clean(b"0 1.5 nan - x\nx 1 2 3 4\n");
        let document = parse(&text, Kind::Dmon, Some(&names(5)));
        let [row] = document.rows.as_slice() else { panic!("{:?}", document.rows) };
        let values = names(5).iter().map(|name| row[name].clone()).collect::<Vec<_>>();
        let text_of = |text: &str| Value::Text(text.to_owned());
        assert_eq!(
            values,
            [Value::Integer(0), Value::Number(1.5), text_of("nan"), Value::Null, text_of("x")]
        );
        assert_eq!(document.unread.len(), 1, "the index of a device is a number");
        let document = parse(&text, Kind::Dmon, Some(&names(MAX_COLUMNS + 1)));
        assert_eq!(document.columns.len(), MAX_COLUMNS);
    }

    #[test]
    fn absent_cell_is_text_in_a_column_of_names() {
        let document = pmon("0 7 - 1 2 ERR!\n0 8 N/A N/A 2 -\n");
        let cell = |row: usize, column: &str| document.rows[row][column].clone();
        assert_eq!(cell(0, "command"), Value::Text("ERR!".to_owned()));
        assert_eq!((cell(0, "type"), cell(1, "command")), (Value::Null, Value::Null));
        assert_eq!(cell(1, "type"), Value::Text("N/A".to_owned()));
        assert_eq!(cell(1, "sm"), Value::Null);
    }

    const PIECES: &[&str] = &["0", "1", "9", " ", "-", "C", "\t", "x.y", "\n"];

    proptest! {
        #[test]
        fn every_line_is_row_or_unread(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..200)) {
            let rows = pieces.concat();
            let text = clean(format!("{PMON}{rows}").as_bytes());
            let document = parse(&text, Kind::Pmon, None);
            let filled = text.lines().skip(2).filter(|(_, line)| !line.trim().is_empty()).count();
            prop_assert_eq!(document.rows.len() + document.unread.len(), filled);
            prop_assert!(document.rows.iter().all(|row| row.len() == document.columns.len()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..500), reported in any::<bool>()) {
            let names = ["gpu".to_owned(), "command".to_owned()];
            parse(&clean(&bytes), Kind::Dmon, reported.then_some(&names));
        }
    }
}
