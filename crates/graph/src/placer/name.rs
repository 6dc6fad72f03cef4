//! Partial names of devices as small numbers, so that groups are merged without allocation.

use crate::device::DeviceSpec;
use std::collections::HashMap;
use std::fmt::Write;

/// A text, identified by its number in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Symbol(u32);

/// A partial name of a device: each part that is `None` matches any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) job: Option<Symbol>,
    pub(super) replica: Option<u32>,
    pub(super) task: Option<u32>,
    pub(super) kind: Option<Symbol>,
    pub(super) index: Option<u32>,
}

/// Two names that differ in a part that both have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incompatible {
    pub(super) part: &'static str,
    pub(super) target: Name,
    pub(super) other: Name,
}

/// Merges one part; `Err` if both have it and differ.
fn merge<T: PartialEq + Copy>(target: &mut Option<T>, other: Option<T>) -> Result<(), ()> {
    match (*target, other) {
        (Some(a), Some(b)) if a != b => return Err(()),
        (_, Some(_)) => *target = other,
        (_, None) => {}
    }
    Ok(())
}

impl Name {
    /// Returns whether it has any restriction.
    pub(super) fn is_some(&self) -> bool {
        *self != Name::default()
    }

    /// Returns whether every part that is given here has the same value there.
    pub(super) fn matches(&self, device: &Name) -> bool {
        fn fits<T: PartialEq>(wanted: Option<T>, of: Option<T>) -> bool {
            wanted.is_none() || wanted == of
        }
        fits(self.job, device.job)
            && fits(self.replica, device.replica)
            && fits(self.task, device.task)
            && fits(self.kind, device.kind)
            && fits(self.index, device.index)
    }

    /// Returns whether the names agree in all parts that both have.
    pub(super) fn is_compatible(&self, other: &Name) -> bool {
        fn fits<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
            a.is_none() || b.is_none() || a == b
        }
        fits(self.job, other.job)
            && fits(self.replica, other.replica)
            && fits(self.task, other.task)
            && fits(self.kind, other.kind)
            && fits(self.index, other.index)
    }

    /// Adds the parts of another name. If `soft`, differing types or indices become unrestricted.
    pub(super) fn merged(mut self, other: &Name, soft: bool) -> Result<Name, Incompatible> {
        let fail = |part, target| Incompatible { part, target, other: *other };
        merge(&mut self.job, other.job).map_err(|()| fail("jobs", self))?;
        merge(&mut self.replica, other.replica).map_err(|()| fail("replicas", self))?;
        merge(&mut self.task, other.task).map_err(|()| fail("tasks", self))?;
        if merge(&mut self.kind, other.kind).is_err() {
            if !soft {
                return Err(fail("types", self));
            }
            (self.kind, self.index) = (None, None);
        } else if merge(&mut self.index, other.index).is_err() {
            if !soft {
                return Err(fail("ids", self));
            }
            self.index = None;
        }
        Ok(self)
    }

    /// Adds the parts of another name, whose type and index take precedence. Jobs, replicas and
    /// tasks must agree.
    pub(super) fn overridden(mut self, other: &Name) -> Result<Name, Incompatible> {
        if other.kind.is_some() {
            self.kind = other.kind;
        }
        if other.index.is_some() {
            self.index = other.index;
        }
        self.merged(other, false)
    }

    /// Returns the name with every part that the other one has.
    pub(super) fn specified(self, by: &Name) -> Name {
        Name {
            job: by.job.or(self.job),
            replica: by.replica.or(self.replica),
            task: by.task.or(self.task),
            kind: by.kind.or(self.kind),
            index: by.index.or(self.index),
        }
    }

    /// Returns whether both name a job, replica or task, but different ones.
    pub(super) fn is_other_process(&self, other: &Name) -> bool {
        let process = |name: &Name| Name { kind: None, index: None, ..*name };
        !process(self).is_compatible(&process(other))
    }
}

/// The texts of names: jobs and types of devices.
#[derive(Debug, Default)]
pub(super) struct Names {
    texts: Vec<String>,
    symbols: HashMap<String, Symbol>,
    parsed: HashMap<String, Option<Name>>,
}

impl Names {
    /// Returns the number of a text.
    pub(super) fn symbol(&mut self, text: &str) -> Symbol {
        if let Some(symbol) = self.symbols.get(text) {
            return *symbol;
        }
        let symbol = Symbol(self.texts.len() as u32);
        self.texts.push(text.to_owned());
        self.symbols.insert(text.to_owned(), symbol);
        symbol
    }

    /// Returns the text of a number.
    pub(super) fn text(&self, symbol: Symbol) -> &str {
        &self.texts[symbol.0 as usize]
    }

    /// Parses a name; `None` if it is malformed.
    pub(super) fn parse(&mut self, text: &str) -> Option<Name> {
        if text.is_empty() {
            return Some(Name::default());
        }
        if let Some(name) = self.parsed.get(text) {
            return *name;
        }
        let name = DeviceSpec::parse(text).map(|spec| self.of(&spec));
        self.parsed.insert(text.to_owned(), name);
        name
    }

    /// Returns the name with the parts of a parsed one.
    pub(super) fn of(&mut self, spec: &DeviceSpec) -> Name {
        Name {
            job: spec.job.as_deref().map(|job| self.symbol(job)),
            replica: spec.replica,
            task: spec.task,
            kind: spec.kind.as_deref().map(|kind| self.symbol(kind)),
            index: spec.index,
        }
    }

    /// Writes a name as TensorFlow does: without the index if there is no type.
    pub(super) fn show(&self, name: &Name) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        if let Some(job) = name.job {
            let _ = write!(text, "/job:{}", self.text(job));
        }
        if let Some(replica) = name.replica {
            let _ = write!(text, "/replica:{replica}");
        }
        if let Some(task) = name.task {
            let _ = write!(text, "/task:{task}");
        }
        if let Some(kind) = name.kind {
            let _ = write!(text, "/device:{}:", self.text(kind));
            let _ = match name.index {
                Some(index) => write!(text, "{index}"),
                None => write!(text, "*"),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges two names and formats the result, or the part that differs.
    fn merge(a: &str, b: &str, soft: bool) -> String {
        let mut names = Names::default();
        let (a, b) = (names.parse(a).unwrap(), names.parse(b).unwrap());
        match a.merged(&b, soft) {
            Ok(name) => names.show(&name),
            Err(incompatible) => incompatible.part.to_owned(),
        }
    }

    #[test]
    fn merge_keeps_the_parts_of_both() {
        assert_eq!(merge("/job:a", "/task:1/gpu:*", false), "/job:a/task:1/device:GPU:*");
        assert_eq!(merge("/gpu:*", "/gpu:3", false), "/device:GPU:3");
    }

    #[test]
    fn soft_merge_drops_differing_type_or_index() {
        for (a, b, hard, soft) in [
            ("/job:a", "/job:b", "jobs", "jobs"),
            ("/replica:0", "/replica:1", "replicas", "replicas"),
            ("/task:0", "/task:1", "tasks", "tasks"),
            ("/job:a/gpu:0", "/cpu:0", "types", "/job:a"),
            ("/gpu:0", "/gpu:1", "ids", "/device:GPU:*"),
        ] {
            assert_eq!(merge(a, b, false), hard);
            assert_eq!(merge(a, b, true), soft);
        }
    }

    #[test]
    fn override_takes_type_and_index_but_no_other_process() {
        let mut names = Names::default();
        let [a, b, c] = ["/job:a/gpu:0", "/job:a/cpu:1", "/job:b"].map(|n| names.parse(n).unwrap());
        assert_eq!(names.show(&a.overridden(&b).unwrap()), "/job:a/device:CPU:1");
        assert_eq!(a.overridden(&c).unwrap_err().part, "jobs");
        assert_eq!(names.show(&a.specified(&c)), "/job:b/device:GPU:0");
    }
}
