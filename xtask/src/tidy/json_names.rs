//! The name of a number in JSON contains its unit.
//!
//! In the files that write JSON for others, each numeric field of a type that derives `Serialize`
//! must end in a unit or, if it is an integer, in a word for a count or an identifier. A unit type
//! (`Bytes`) requires its own suffix. `json!` is forbidden there, because its keys cannot be
//! checked. Not checked: numbers inside a type of another crate, and names in a manual
//! implementation of `Serialize`.

use crate::code::{bracket_end, find_word, line_of, mask, without_tests};
use crate::tree::File;
use crate::{Tree, Violation};

const SCANNED: &[&str] = &[
    "crates/cli/src/",
    "crates/report/src/",
    "crates/reaper/src/",
    "crates/gpu-text/src/document.rs",
];

/// Files that write JSON in the format of another tool.
const NAMED_BY_OTHERS: &[&str] = &["crates/report/src/gpustat.rs"];

const UNITS: &[&str] = &[
    "bytes", "mib", "gib", "bits", "mw", "w", "mj", "c", "percent", "ms", "s", "us", "ns", "mhz",
    "ticks",
];

/// Last words of integer names without a unit: identifiers, counts and scores.
const UNITLESS: &[&str] = &[
    "schema",
    "pid",
    "pids",
    "uid",
    "gid",
    "id",
    "index",
    "minor",
    "major",
    "line",
    "count",
    "code",
    "descriptors",
    "scores",
    "processes",
];

const WHOLE: &[&str] = &[
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "usize",
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "isize",
    "Pid",
    "StartTime",
];

/// Types with a known unit, and the suffixes for it.
const TYPED: &[(&str, &[&str])] = &[
    ("Bytes", &["bytes"]),
    ("Milliwatts", &["mw"]),
    ("Celsius", &["c"]),
    ("Percent", &["percent"]),
    ("Timestamp", &["ms"]),
    ("Duration", &["ms", "s"]),
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let scanned = tree.files().iter().filter(|file| {
        file.is_rust()
            && SCANNED.iter().any(|prefix| file.path.starts_with(prefix))
            && !NAMED_BY_OTHERS.contains(&file.path.as_str())
    });
    scanned.flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Violation> {
    let code = without_tests(&mask(&file.text));
    let mut violations = Vec::new();
    let mut say = |at, what, remedy| {
        violations.push(Violation {
            path: file.path.clone(),
            line: line_of(&code, at),
            what,
            remedy,
        });
    };
    for at in find_word(&code, "json!") {
        say(
            at,
            "json! in a file that writes JSON".to_owned(),
            "derive Serialize on a type".to_owned(),
        );
    }
    for (start, end) in serialized_bodies(&code) {
        for field in fields(&code, &file.text, start, end) {
            if let Some(remedy) = wrong_name(&field) {
                say(field.at, format!("JSON name '{}' of a {}", field.name, field.type_), remedy);
            }
        }
    }
    violations
}

/// Returns the bodies of the types that derive `Serialize`.
fn serialized_bodies(code: &str) -> Vec<(usize, usize)> {
    find_word(code, "derive")
        .filter_map(|at| {
            let open = at + code[at..].find('(')?;
            let close = bracket_end(code, open);
            find_word(&code[open..close], "Serialize").next()?;
            let keyword = ["struct", "enum"]
                .iter()
                .filter_map(|word| find_word(&code[close..], word).next())
                .min()?;
            let body = close + keyword + code[close + keyword..].find(['{', ';'])?;
            (code.as_bytes()[body] == b'{').then(|| (body + 1, bracket_end(code, body) - 1))
        })
        .collect()
}

struct Field {
    at: usize,
    name: String,
    type_: String,
}

/// Returns the named fields between two offsets, including those of enum variants, with their names
/// in JSON.
fn fields(code: &str, source: &str, start: usize, end: usize) -> Vec<Field> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut attributes) = (start, String::new());
    while at < end {
        match bytes[at] {
            b'#' => {
                let close = bracket_end(code, at + 1);
                attributes.push_str(&source[at..close]);
                at = close;
            }
            // A tuple variant, or the scope of `pub(crate)`.
            b'(' => at = bracket_end(code, at),
            b',' => {
                attributes.clear();
                at += 1;
            }
            byte if byte.is_ascii_alphabetic() || byte == b'_' => {
                let length = word_length(&bytes[at..end]);
                let word = &code[at..at + length];
                let after = at + length + code[at + length..end].len()
                    - code[at + length..end].trim_start().len();
                if bytes.get(after) == Some(&b':') && bytes.get(after + 1) != Some(&b':') {
                    let type_end = type_end(code, after + 1, end);
                    let type_ = code[after + 1..type_end].split_whitespace().collect::<String>();
                    if let Some(name) = json_name(word, &attributes) {
                        found.push(Field { at, name, type_ });
                    }
                    attributes.clear();
                    at = type_end;
                } else {
                    if bytes.get(after) == Some(&b'{') {
                        attributes.clear();
                    }
                    at += length;
                }
            }
            _ => at += 1,
        }
    }
    found
}

fn word_length(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count()
}

/// Returns the end of a type: the comma or closing brace outside its brackets.
fn type_end(code: &str, start: usize, end: usize) -> usize {
    let mut depth = 0i32;
    for (at, byte) in code.bytes().enumerate().take(end).skip(start) {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            b'>' | b')' | b']' => depth -= 1,
            b',' | b'}' if depth <= 0 => return at,
            _ => {}
        }
    }
    end
}

/// Returns the name in JSON; `None` for a field without a name of its own.
fn json_name(field: &str, attributes: &str) -> Option<String> {
    let attributes: String = attributes.split_whitespace().collect();
    let says = |word| attributes.contains(word);
    if says("(skip)") || says("(skip,") || says("skip_serializing)") || says("flatten") {
        return None;
    }
    let renamed = attributes.split_once("rename=\"").and_then(|(_, rest)| rest.split_once('"'));
    Some(renamed.map_or(field, |(name, _)| name).to_owned())
}

/// Returns the remedy for a name without its unit.
fn wrong_name(field: &Field) -> Option<String> {
    let last = field.name.rsplit(['_', '-']).next().unwrap_or_default();
    let is = |type_: &str| find_word(&field.type_, type_).next().is_some();
    if let Some((_, suffixes)) = TYPED.iter().find(|(type_, _)| is(type_)) {
        return (!suffixes.contains(&last))
            .then(|| format!("end it in _{}", suffixes.join(" or _")));
    }
    if is("f32") || is("f64") {
        return (!UNITS.contains(&last)).then(|| format!("end it in one of _{}", UNITS.join(" _")));
    }
    if WHOLE.iter().any(|type_| is(type_)) {
        let known = UNITS.contains(&last) || UNITLESS.contains(&last);
        return (!known).then(|| {
            format!(
                "end it in a unit, or, if it is a count or an identifier, in a word of {}",
                "UNITLESS in xtask/src/tidy/json_names.rs"
            )
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> Vec<String> {
        check(&Tree::of(&[("crates/cli/src/json.rs", source)]))
            .into_iter()
            .map(|v| v.what)
            .collect()
    }

    #[test]
    fn numbers_without_unit_are_reported() {
        let source = r#"
            #[derive(Clone, Serialize)]
            pub struct Gpu {
                /// Memory: u64
                pub memory_used_bytes: u64,
                pub memory: Option<Bytes>,
                pub(crate) power_mw: Reading<Milliwatts>,
                pub power_w: Milliwatts,
                pub index: u32,
                pub load: f64,
                pub name: BTreeMap<String, String>,
            }"#;
        assert_eq!(
            names(source),
            [
                "JSON name 'memory' of a Option<Bytes>",
                "JSON name 'power_w' of a Milliwatts",
                "JSON name 'load' of a f64",
            ]
        );
    }

    #[test]
    fn enums_renames_and_serde_paths_are_parsed() {
        let source = r#"
            #[cfg_attr(feature = "serde", derive(serde::Serialize))]
            enum Event {
                Tuple(u64, Vec<u8>),
                #[serde(rename = "signal")]
                Signal { #[serde(rename = "waited_ms")] waited: u64, grace: Duration },
                Nothing,
            }
            #[derive(Serialize)]
            struct Hidden { #[serde(skip)] size: u64, #[serde(flatten)] rest: Rest }
            #[derive(Debug)]
            struct NotJson { size: u64 }
            #[derive(Serialize)]
            struct Transparent(u64);
            struct AlsoNotJson { size: u64 }"#;
        assert_eq!(names(source), ["JSON name 'grace' of a Duration"]);
    }

    #[test]
    fn untyped_json_is_forbidden_outside_tests() {
        assert_eq!(
            names("fn f() { json!({}) }\n#[cfg(test)]\nmod tests { fn g() { json!({}) } }").len(),
            1
        );
    }

    #[test]
    fn other_files_are_not_checked() {
        let source = "#[derive(Serialize)] struct S { size: u64 }";
        for path in ["crates/gpu-sim/src/a.rs", NAMED_BY_OTHERS[0]] {
            assert!(check(&Tree::of(&[(path, source)])).is_empty());
        }
        assert_eq!(check(&Tree::of(&[("crates/report/src/a.rs", source)])).len(), 1);
    }
}
