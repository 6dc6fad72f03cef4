//! The files that describe cards, from the text of one file.
//!
//! The reference for users is `sim-fixtures/README.md`.

use gpu_core::{Absent, Error, ErrorKind, Reading, Result};
use gpu_drm::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The most files, and the longest path in bytes: together they bound the memory.
const MAX_FILES: usize = 65_536;
const MAX_PATH: usize = 256;

/// The most links of a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Files below a root, by their paths without links. Directories exist if something is in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files(BTreeMap<String, Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    File(Vec<u8>),
    /// A number at the start, and how much it grows in a second.
    Counter(u64, u64),
    Link(String),
}

impl Files {
    /// Reads the text of the file `name`.
    ///
    /// # Errors
    /// `Invalid`, with the line and what to write instead.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self> {
        let mut files = Files::default();
        let mut dir = String::new();
        for (number, line) in (1..).zip(text.lines()) {
            let failed = |what: String| {
                Error::new(ErrorKind::Invalid, format!("{name} line {number}: {what}"))
            };
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                Some(section) => section.clone_into(&mut dir),
                None => {
                    let (path, entry) = entry(line).map_err(failed)?;
                    let path =
                        if dir.is_empty() { path.to_owned() } else { format!("{dir}/{path}") };
                    files.add(path, entry).map_err(failed)?;
                }
            }
        }
        Ok(files)
    }

    fn add(&mut self, path: String, entry: Entry) -> std::result::Result<(), String> {
        let is_plain = |part: &str| !matches!(part, "" | "." | "..");
        if path.len() > MAX_PATH || !path.split('/').all(is_plain) {
            let what = format!("at most {MAX_PATH} bytes, without '.', '..' and empty names");
            return Err(format!("'{path}' is no path below the root; write {what}"));
        }
        let above = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        if let Some(file) = above.into_iter().find(|dir| self.0.contains_key(*dir)) {
            return Err(format!("'{file}' is already a file; remove it or what is below it"));
        }
        if self.below(&path).next().is_some() {
            return Err(format!(
                "'{path}' is already a directory; remove the file or what is in it"
            ));
        }
        if self.0.len() >= MAX_FILES {
            return Err(format!("more than {MAX_FILES} files; keep only those that are read"));
        }
        match self.0.insert(path.clone(), entry) {
            Some(_) => Err(format!("'{path}' is there twice; remove one of the lines")),
            None => Ok(()),
        }
    }

    /// Returns the paths below a directory, relative to it.
    fn below(&self, dir: &str) -> impl Iterator<Item = &str> {
        let dir = format!("{dir}/");
        let from = self.0.range(dir.clone()..);
        from.map_while(move |(path, _)| path.strip_prefix(&*dir))
    }

    /// Returns a path without links and `..`.
    ///
    /// # Errors
    /// `Failed` for too many links.
    pub(crate) fn resolve(&self, path: &str) -> Reading<String> {
        let mut left: Vec<&str> = path.rsplit('/').collect();
        let (mut done, mut links) = (Vec::<&str>::new(), 0);
        while let Some(name) = left.pop() {
            match name {
                "" | "." => {}
                ".." => drop(done.pop()),
                _ => {
                    done.push(name);
                    if let Some(Entry::Link(target)) = self.0.get(&done.join("/")) {
                        links += 1;
                        if links > MAX_LINKS {
                            return Err(Absent::Failed);
                        }
                        done.pop();
                        if target.starts_with('/') {
                            done.clear();
                        }
                        left.extend(target.rsplit('/'));
                    }
                }
            }
        }
        Ok(done.join("/"))
    }

    /// Returns the content of a file without links in its path, this long after the start.
    ///
    /// # Errors
    /// `NotSupported` if there is none, `Failed` for a directory.
    pub(crate) fn content(&self, path: &str, now: Duration) -> Reading<Vec<u8>> {
        match self.0.get(path) {
            Some(Entry::File(content)) => Ok(content.clone()),
            Some(Entry::Counter(start, rate)) => {
                let grown = now.as_millis().saturating_mul(u128::from(*rate)) / 1000;
                Ok((u128::from(*start) + grown).to_string().into_bytes())
            }
            Some(Entry::Link(_)) => Err(Absent::Failed),
            None if self.below(path).next().is_some() => Err(Absent::Failed),
            None => Err(Absent::NotSupported),
        }
    }
}

/// The files at the start of the machine.
impl Tree for Files {
    fn read(&self, path: &str, limit: usize) -> Reading<Vec<u8>> {
        let mut content = self.content(&self.resolve(path)?, Duration::ZERO)?;
        content.truncate(limit);
        Ok(content)
    }

    fn names(&self, path: &str) -> Reading<Vec<String>> {
        let path = self.resolve(path)?;
        let names = self.below(&path).map(|below| below.split('/').next().unwrap_or(below));
        let names: BTreeSet<&str> = names.collect();
        match names.is_empty() {
            true if self.0.contains_key(&path) => Err(Absent::Failed),
            true => Err(Absent::NotSupported),
            false => Ok(names.into_iter().map(str::to_owned).collect()),
        }
    }

    fn target(&self, path: &str) -> Reading<String> {
        let (dir, name) = path.rsplit_once('/').ok_or(Absent::Failed)?;
        match self.0.get(&format!("{}/{name}", self.resolve(dir)?)) {
            Some(Entry::Link(target)) => {
                target.rsplit('/').next().map(str::to_owned).ok_or(Absent::Implausible)
            }
            Some(_) => Err(Absent::Failed),
            None => Err(Absent::NotSupported),
        }
    }
}

/// Parses a line: a path, and what is there.
fn entry(line: &str) -> std::result::Result<(&str, Entry), String> {
    let (path, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (sign, value) = rest.split_once(' ').unwrap_or((rest, ""));
    let entry = match sign {
        "=" => Entry::File(unescaped(value)?),
        "=x" => Entry::File(bytes(value).ok_or("write an even number of hex digits after '=x'")?),
        "=+" => {
            let numbers =
                value.split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
            let (start, rate) =
                numbers.ok_or("write the start and the growth per second after '=+'")?;
            Entry::Counter(start, rate)
        }
        "->" => Entry::Link(value.to_owned()),
        _ => {
            let known = "'PATH = TEXT', 'PATH =x HEX', 'PATH =+ START GROWTH', 'PATH -> TARGET' or '[DIRECTORY]'";
            return Err(format!("'{line}' is none of the forms; write {known}"));
        }
    };
    Ok((path, entry))
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn unescaped(text: &str) -> std::result::Result<Vec<u8>, String> {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    while let Some(part) = parts.next() {
        match part.chars().next() {
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            None => {
                // A doubled backslash leaves an empty part.
                plain.push('\\');
                plain.push_str(parts.next().ok_or("write a backslash at the end as '\\\\'")?);
                continue;
            }
            Some(other) => return Err(format!("'\\{other}' is no escape; write \\n, \\t or \\\\")),
        }
        plain.push_str(&part[1..]);
    }
    Ok(plain.into_bytes())
}
