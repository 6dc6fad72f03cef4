//! The files of a crate do not import each other, directly or through others.
//!
//! A file imports another if a `use` or a path in it names an item that the other one defines. A
//! re-export leads to the file behind it. Three things are no import: `mod`, a re-export by
//! itself, and an item of a parent that its child names, because a module is part of its parent.

use crate::code::line_of;
use crate::modules::{Mention, Modules, sources};
use crate::{Tree, Violation};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (dir, files) in sources(tree) {
        let modules = Modules::read(dir, &files);
        let imports: Vec<_> = (0..modules.len()).map(|module| imports(&modules, module)).collect();
        let groups = groups(&imports);
        violations.extend(groups.iter().map(|group| violation(&modules, &imports, group)));
    }
    violations
}

type Imports = BTreeMap<usize, Mention>;

fn imports(modules: &Modules<'_>, module: usize) -> Imports {
    let mut named = modules.named_by(module);
    named.retain(|other, _| !modules.contains(*other, module));
    named
}

/// Returns the groups of modules that reach each other.
fn groups(imports: &[Imports]) -> Vec<BTreeSet<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..imports.len())
        .map(|start| {
            let (mut reached, mut open) = (BTreeSet::new(), vec![start]);
            while let Some(module) = open.pop() {
                open.extend(imports[module].keys().filter(|other| reached.insert(**other)));
            }
            reached
        })
        .collect();
    let mut groups: Vec<BTreeSet<usize>> = Vec::new();
    for module in 0..imports.len() {
        let back = |other: &&usize| reached[**other].contains(&module);
        let group: BTreeSet<usize> = reached[module].iter().filter(back).copied().collect();
        // A module outside of every cycle does not reach itself.
        if group.first() == Some(&module) {
            groups.push(group);
        }
    }
    groups
}

fn violation(modules: &Modules<'_>, imports: &[Imports], group: &BTreeSet<usize>) -> Violation {
    let (mut what, mut first) = ("files import each other".to_owned(), None);
    for module in group {
        let file = modules.file(*module);
        for (other, mention) in imports[*module].iter().filter(|(other, _)| group.contains(other)) {
            let line = line_of(&file.text, mention.at);
            first.get_or_insert((&file.path, line));
            let (from, to) = (&file.path, &modules.file(*other).path);
            // Writing to a string cannot fail.
            let _ = write!(what, "\n    {from}:{line}: {} is in {to}", mention.path);
        }
    }
    let (path, line) = first.map_or_else(Default::default, |(path, line)| (path.clone(), line));
    let remedy = "move what both need into a module that imports neither".to_owned();
    Violation { path, line, what, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_is_reported_once_with_its_imports() {
        let tree = Tree::of(&[
            (
                "crates/a/src/lib.rs",
                "mod b; mod c; mod d; mod e; mod g; pub use d::Dee;\nuse e::Eff;\npub struct Root;",
            ),
            (
                "crates/a/src/b.rs",
                "\nuse crate::c::See;\nuse crate::Dee;\nuse crate::g::Gee;\npub struct Bee;",
            ),
            ("crates/a/src/c.rs", "use crate::Dee;\npub struct See;"),
            ("crates/a/src/d.rs", "pub struct Dee;\nfn f(b: crate::b::Bee) {}"),
            (
                "crates/a/src/e.rs",
                "mod f;\nuse f::G;\npub struct Eff;\nfn f(d: crate::Dee, r: crate::Root) {}",
            ),
            ("crates/a/src/g.rs", "pub struct Gee;"),
            ("crates/a/src/e/f.rs", "use super::Eff;\nuse crate::b::Bee;\npub struct G;"),
        ]);
        let found = check(&tree);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].path.as_str(), found[0].line), ("crates/a/src/b.rs", 2));
        assert_eq!(
            found[0].what,
            "files import each other\n    \
             crates/a/src/b.rs:2: crate::c::See is in crates/a/src/c.rs\n    \
             crates/a/src/b.rs:3: crate::Dee is in crates/a/src/d.rs\n    \
             crates/a/src/c.rs:1: crate::Dee is in crates/a/src/d.rs\n    \
             crates/a/src/d.rs:2: crate::b::Bee is in crates/a/src/b.rs"
        );
    }

    #[test]
    fn parent_is_in_the_cycle_of_its_child() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "mod b; mod c;"),
            ("crates/a/src/b.rs", "mod d;\nuse d::Dee;\npub struct Bee;"),
            ("crates/a/src/b/d.rs", "use crate::c::See;\npub struct Dee;"),
            ("crates/a/src/c.rs", "use crate::b::Bee;\npub struct See;"),
        ]);
        let found = check(&tree);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].what.lines().count(), 4, "{found:?}");
    }
}
