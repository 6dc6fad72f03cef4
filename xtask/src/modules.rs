//! The modules of a crate and the items of other modules that each one names, from their text.
//!
//! A module is a file. A path is followed through modules, `use` and `pub use` to the file that
//! defines its item, so a re-export hides nothing. Names that macros make are not seen.

use crate::Tree;
use crate::code::{test_ranges, without_tests};
use crate::tree::File;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Returns the source files of each crate by its directory, without those that only tests contain.
pub(crate) fn sources(tree: &Tree) -> BTreeMap<&str, Vec<&File>> {
    let mut crates: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    let files = tree.files().iter().filter(|file| file.is_rust());
    for file in files.filter(|file| file.path.starts_with("crates/")) {
        let dir = file.path.match_indices('/').nth(1).map(|(end, _)| file.path.split_at(end));
        if let Some((dir, inside)) = dir
            && inside.starts_with("/src/")
        {
            crates.entry(dir).or_default().push(file);
        }
    }
    for files in crates.values_mut() {
        let tests: Vec<String> = files.iter().flat_map(|file| test_modules(file)).collect();
        let is_test = |path: &str| {
            tests.iter().any(|test| {
                path.strip_prefix(test).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            })
        };
        files.retain(|file| !is_test(&file.path));
    }
    crates
}

/// Returns the paths, without `.rs`, of the modules that a file declares only for tests.
fn test_modules(file: &File) -> Vec<String> {
    let masked = file.masked();
    let inside = inside(&file.path);
    let items = test_ranges(masked).into_iter().map(|range| &masked[range]);
    let declared = items.filter_map(|item| item.strip_suffix(';')?.split_once("mod "));
    declared.map(|(_, name)| format!("{inside}{}", name.trim())).collect()
}

/// Returns the directory of a module's children, with a final `/`.
fn inside(path: &str) -> String {
    let stem = path.trim_end_matches(".rs");
    let (dir, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    if ["lib", "main", "mod"].contains(&name) { format!("{dir}/") } else { format!("{stem}/") }
}

/// The modules of one crate.
pub(crate) struct Modules<'a> {
    all: Vec<Module<'a>>,
    by_name: HashMap<String, usize>,
}

/// A mention of another module's item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mention {
    /// The offset in the file.
    pub(crate) at: usize,
    /// The path as written, `use` trees expanded.
    pub(crate) path: String,
}

struct Module<'a> {
    /// Its path in the crate, empty for the root.
    name: String,
    file: &'a File,
    code: Code,
}

/// What the text of a module defines and names.
#[derive(Debug, Default)]
struct Code {
    defined: BTreeSet<String>,
    imports: Vec<Import>,
    /// Paths of two segments or more outside `use`.
    paths: Vec<Path>,
    /// Single words outside `use`, at their first offset.
    words: BTreeMap<String, usize>,
}

#[derive(Clone, Debug)]
struct Path {
    at: usize,
    segments: Vec<String>,
}

#[derive(Debug)]
struct Import {
    path: Path,
    /// The name in this module, `*` for all names.
    name: String,
    exported: bool,
}

impl<'a> Modules<'a> {
    /// Reads the files of the crate in this directory.
    pub(crate) fn read(dir: &str, files: &[&'a File]) -> Self {
        let mut modules = Modules { all: Vec::new(), by_name: HashMap::new() };
        for file in files {
            let inside = inside(&file.path);
            let name = inside[dir.len()..].trim_start_matches("/src/").trim_end_matches('/');
            let name = name.replace('/', "::");
            modules.by_name.insert(name.clone(), modules.all.len());
            modules.all.push(Module { name, file, code: Code::of(file.masked()) });
        }
        modules
    }

    /// Returns the number of modules.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the file of a module.
    pub(crate) fn file(&self, module: usize) -> &'a File {
        self.all[module].file
    }

    /// Returns whether a module contains another, directly or through others.
    pub(crate) fn contains(&self, outer: usize, inner: usize) -> bool {
        let (outer, inner) = (&self.all[outer].name, &self.all[inner].name);
        let rest = inner.strip_prefix(outer.as_str()).unwrap_or_default();
        outer.is_empty() && !inner.is_empty() || rest.starts_with("::")
    }

    /// Returns the modules with items that a module names, with the first mention of each.
    pub(crate) fn named_by(&self, module: usize) -> BTreeMap<usize, Mention> {
        let code = &self.all[module].code;
        let mut found: BTreeMap<usize, Mention> = BTreeMap::new();
        let mut note = |path: &Path| {
            if let Some(Found::Item(other)) = self.resolve(module, &path.segments, &mut Vec::new())
                && other != module
            {
                let mention = Mention { at: path.at, path: path.segments.join("::") };
                let first = found.entry(other).or_insert_with(|| mention.clone());
                if mention.at < first.at {
                    *first = mention;
                }
            }
        };
        for import in code.imports.iter().filter(|import| import.name != "*") {
            if !import.exported || code.words.contains_key(&import.name) {
                note(&import.path);
            }
        }
        code.paths.iter().for_each(&mut note);
        if code.imports.iter().any(|import| import.name == "*") {
            for (word, at) in &code.words {
                note(&Path { at: *at, segments: vec![word.clone()] });
            }
        }
        found
    }

    /// Follows a path that is written in `module`.
    fn resolve(&self, module: usize, segments: &[String], asked: &mut Asked) -> Option<Found> {
        let (mut current, mut rest) = (module, segments);
        while let Some((first, after)) = rest.split_first() {
            let name = &self.all[current].name;
            current = match first.as_str() {
                "crate" => *self.by_name.get("")?,
                "self" => current,
                "super" => *self.by_name.get(name.rsplit_once("::").map_or("", |(up, _)| up))?,
                _ => break,
            };
            rest = after;
        }
        while let Some((first, after)) = rest.split_first() {
            match self.lookup(current, first, asked) {
                Some(Found::Module(inner)) => current = inner,
                Some(item) => return Some(item),
                // A macro of the module made it.
                None if rest.len() < segments.len() => return Some(Found::Item(current)),
                None => return None,
            }
            rest = after;
        }
        Some(Found::Module(current))
    }

    /// Finds a name in the scope of a module.
    fn lookup(&self, module: usize, name: &str, asked: &mut Asked) -> Option<Found> {
        let Module { name: path, code, .. } = &self.all[module];
        let child = if path.is_empty() { name.to_owned() } else { format!("{path}::{name}") };
        if let Some(child) = self.by_name.get(&child) {
            return Some(Found::Module(*child));
        }
        if code.defined.contains(name) {
            return Some(Found::Item(module));
        }
        let question = (module, name.to_owned());
        if asked.contains(&question) {
            return None;
        }
        asked.push(question);
        if let Some(import) = code.imports.iter().find(|import| import.name == name) {
            return self.resolve(module, &import.path.segments, asked);
        }
        code.imports.iter().filter(|import| import.name == "*").find_map(|import| {
            match self.resolve(module, &import.path.segments, asked)? {
                Found::Module(other) if other != module => self.lookup(other, name, asked),
                _ => None,
            }
        })
    }
}

/// The names that were looked up on the way, with their modules: imports may form a loop.
type Asked = Vec<(usize, String)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

/// Returns the words and signs of masked source, `::` as one, with their offsets.
fn tokens(masked: &str) -> Vec<(usize, &str)> {
    let bytes = masked.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = match bytes[at] {
            byte if is_word(byte) => bytes[at..].iter().take_while(|b| is_word(**b)).count(),
            b':' if bytes.get(at + 1) == Some(&b':') => 2,
            _ => 1,
        };
        if !bytes[at].is_ascii_whitespace() {
            found.push((at, &masked[at..at + length]));
        }
        at += length;
    }
    found
}

fn starts_as_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

impl Code {
    fn of(masked: &str) -> Self {
        const KINDS: &[&str] =
            &["fn", "struct", "enum", "trait", "const", "static", "type", "union", "macro_rules"];
        let code = without_tests(masked);
        let tokens = tokens(&code);
        let token = |at: usize| tokens.get(at).map_or("", |(_, token)| *token);
        let mut read = Code::default();
        let mut depth = 0_usize;
        // The depths of modules within the file.
        let mut inner: Vec<usize> = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            let (offset, word) = tokens[at];
            match word {
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    inner.pop_if(|opened| *opened == depth);
                }
                "use" if starts_as_name(token(at + 1)) || token(at + 1) == "{" => {
                    let exported = at > 0 && matches!(token(at - 1), "pub" | ")");
                    let tree = UseTree { tokens: &tokens, exported, inner: inner.len() };
                    at = tree.read(at + 1, &[], &mut read.imports);
                    continue;
                }
                "mod" if starts_as_name(token(at + 1)) && token(at + 2) == "{" => {
                    inner.push(depth);
                    read.defined.insert(token(at + 1).to_owned());
                    at += 1;
                }
                "mod" => at += 1,
                kind if KINDS.contains(&kind) && depth == inner.len() => {
                    let name = (at + 1..at + 4).map(token).find(|name| {
                        starts_as_name(name) && !matches!(*name, "fn" | "unsafe" | "extern" | "mut")
                    });
                    if let Some(name) = name {
                        read.defined.insert(name.to_owned());
                    }
                }
                word if starts_as_name(word) && token(at.wrapping_sub(1)) != "." => {
                    let mut segments = vec![word.to_owned()];
                    while token(at + 1) == "::" && starts_as_name(token(at + 2)) {
                        segments.push(token(at + 2).to_owned());
                        at += 2;
                    }
                    leave_inner(&mut segments, inner.len());
                    let first = segments.first().cloned().unwrap_or_default();
                    if segments.len() > 1 {
                        read.paths.push(Path { at: offset, segments });
                    }
                    read.words.entry(first).or_insert(offset);
                }
                _ => {}
            }
            at += 1;
        }
        read
    }
}

/// Drops the `super` that only lead from modules within a file to the file's own.
fn leave_inner(segments: &mut Vec<String>, inner: usize) {
    for _ in 0..inner {
        if segments.len() > 1 && segments[0] == "super" {
            segments.remove(0);
        }
    }
}

struct UseTree<'a> {
    tokens: &'a [(usize, &'a str)],
    exported: bool,
    inner: usize,
}

impl UseTree<'_> {
    /// Reads the tree that begins at a token, and returns the token after it.
    fn read(&self, mut at: usize, before: &[String], imports: &mut Vec<Import>) -> usize {
        let mut segments = before.to_vec();
        let offset = self.tokens.get(at).map_or(0, |(offset, _)| *offset);
        while let Some((_, token)) = self.tokens.get(at) {
            at += 1;
            match *token {
                "::" => {}
                "{" => loop {
                    match self.tokens.get(at).map(|(_, token)| *token) {
                        None => return at,
                        Some("}") => return at + 1,
                        Some(",") => at += 1,
                        Some(_) => at = self.read(at, &segments, imports),
                    }
                },
                "*" => {
                    self.push(offset, segments, "*", imports);
                    return at;
                }
                "as" => {
                    let name = self.tokens.get(at).map_or("", |(_, name)| *name);
                    self.push(offset, segments, name, imports);
                    return at + 1;
                }
                word if starts_as_name(word) => {
                    if word != "self" || segments.is_empty() {
                        segments.push(word.to_owned());
                    }
                    let next = self.tokens.get(at).map_or("", |(_, token)| *token);
                    if next != "::" && next != "as" {
                        let name = segments.last().cloned().unwrap_or_default();
                        self.push(offset, segments, &name, imports);
                        return at;
                    }
                }
                _ => return at,
            }
        }
        at
    }

    fn push(&self, at: usize, mut segments: Vec<String>, name: &str, imports: &mut Vec<Import>) {
        leave_inner(&mut segments, self.inner);
        let path = Path { at, segments };
        imports.push(Import { path, name: name.to_owned(), exported: self.exported });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(files: &[(&str, &str)], from: &str) -> Vec<String> {
        let tree = Tree::of(files);
        let sources = sources(&tree);
        let modules = Modules::read("crates/a", &sources["crates/a"]);
        let from = (0..modules.len()).find(|at| modules.file(*at).path == from).unwrap();
        let mentions = modules.named_by(from).into_iter();
        mentions.map(|(other, by)| format!("{} {}", modules.file(other).path, by.path)).collect()
    }

    #[test]
    fn paths_lead_to_the_file_that_defines_the_item() {
        let others = [
            ("crates/a/src/lib.rs", "mod b; mod c; pub use c::deep::Item; pub use b::*;"),
            (
                "crates/a/src/b.rs",
                "pub struct Bee; pub(crate) fn buzz() { const INNER: u8 = 1; } use std::fmt::Debug;",
            ),
            ("crates/a/src/c/mod.rs", "mod deep; mod made; pub const TOP: u8 = 0;"),
            ("crates/a/src/c/deep.rs", "pub enum Item { One }"),
            ("crates/a/src/c/made.rs", "groups! { Made }"),
        ];
        for (code, expected) in [
            ("use crate::Item;", "c/deep.rs crate::Item"),
            ("use crate::Item as Other;", "c/deep.rs crate::Item"),
            ("use crate::{c::{self, deep::Item}};", "c/deep.rs crate::c::deep::Item"),
            ("use crate::c; fn f() { c::deep::Item::One; }", "c/deep.rs c::deep::Item::One"),
            ("use super::Bee;", "b.rs super::Bee"),
            ("fn f() { crate::buzz() }", "b.rs crate::buzz"),
            ("use super::*; fn f(x: Bee) {}", "b.rs Bee"),
            ("use super::c::TOP;", "c/mod.rs super::c::TOP"),
            ("use crate::c::made::Made;", "c/made.rs crate::c::made::Made"),
            ("mod inner { use super::super::b::Bee; }", "b.rs super::b::Bee"),
            ("pub use crate::Bee; fn f(x: Bee) {}", "b.rs crate::Bee"),
        ] {
            let files: Vec<_> = others.into_iter().chain([("crates/a/src/d.rs", code)]).collect();
            assert_eq!(
                named(&files, "crates/a/src/d.rs"),
                [format!("crates/a/src/{expected}")],
                "{code}"
            );
        }
        for code in [
            "pub use crate::Bee;",
            "use crate::c;",
            "use super::*; fn f(x: Dee, y: INNER) { x.buzz() }",
            "use serde::Item; fn f() { Bee::new(); std::fmt::Debug::fmt() }",
            "// crate::Item\nconst TEXT: &str = \"crate::Item\";",
            "#[cfg(test)] mod tests { use crate::Item; }",
            "use self::Dee; struct Dee; mod inner { use super::Dee; }",
            "fn f() -> impl Iterator + use<'static> {}",
        ] {
            let files: Vec<_> = others.into_iter().chain([("crates/a/src/d.rs", code)]).collect();
            assert!(named(&files, "crates/a/src/d.rs").is_empty(), "{code}");
        }
    }

    #[test]
    fn loops_of_imports_end() {
        let files = [
            ("crates/a/src/lib.rs", "mod b; mod c; pub use b::*;"),
            ("crates/a/src/b.rs", "pub use crate::c::*; pub use crate::X;"),
            ("crates/a/src/c.rs", "pub use crate::b::*; fn f() { crate::X::y(); }"),
        ];
        assert_eq!(named(&files, "crates/a/src/c.rs"), ["crates/a/src/lib.rs crate::X::y"]);
    }

    #[test]
    fn files_that_only_tests_contain_are_no_sources() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "mod b; #[cfg(test)] mod random;\n#[cfg(test)]\nmod x {}"),
            ("crates/a/src/b.rs", "#[cfg(test)]\npub(super) mod tests;"),
            ("crates/a/src/b/tests.rs", ""),
            ("crates/a/src/b/tests/more.rs", ""),
            ("crates/a/src/b/tests_of_hardware.rs", ""),
            ("crates/a/src/random/mod.rs", ""),
            ("crates/a/tests/c.rs", ""),
            ("crates/a/fuzz/src/lib.rs", ""),
            ("xtask/src/lib.rs", ""),
        ]);
        let paths: Vec<&str> =
            sources(&tree)["crates/a"].iter().map(|file| file.path.as_str()).collect();
        assert_eq!(
            paths,
            ["crates/a/src/lib.rs", "crates/a/src/b.rs", "crates/a/src/b/tests_of_hardware.rs"]
        );
    }
}
