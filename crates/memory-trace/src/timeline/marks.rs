//! The text and shapes of marked events.

use super::Timeline;
use super::history::{Life, Mark, MarkKind, Origin};
use super::scale::thousands;
use crate::trace::{Frame, StackId};
use gpu_core::{Bytes, amount, escape_markup};

/// The maximum number of frames in a stack, and of characters in each.
const MAX_CALLS: usize = 8;
const MAX_CALL_CHARS: usize = 110;

impl MarkKind {
    /// Returns its shape around a position, in units.
    pub(super) fn shape(self) -> &'static str {
        match self {
            MarkKind::MadeRoom => "m-5 10h10l-5-9z",
            MarkKind::Emptied => "m0 1l5 5-5 5-5-5z",
            MarkKind::Failed => "m-4 2l8 8m0-8l-8 8",
            MarkKind::Ended => "m-6 0l12 12m0-12l-12 12",
        }
    }

    pub(super) fn class(self) -> &'static str {
        match self {
            MarkKind::MadeRoom | MarkKind::Emptied => "mark",
            MarkKind::Failed | MarkKind::Ended => "cross",
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            MarkKind::MadeRoom => "cache released to make room",
            MarkKind::Emptied => "cache emptied by the program",
            MarkKind::Failed => "failed in the recording",
            MarkKind::Ended => "out of memory",
        }
    }
}

impl Timeline<'_> {
    /// Describes a mark and its position, or the number of marks at one position.
    pub(super) fn mark_words(&self, marks: &[Mark]) -> String {
        let [first, ..] = marks else { return String::new() };
        let event = thousands(self.event_at(first.time) as u64);
        let size = marks.iter().map(|mark| Bytes(mark.size)).max().unwrap_or_default();
        let what = first.kind.words();
        match marks.len() {
            1 => format!("{what}: {} at event {event}", amount(size)),
            many => format!("{what}: {many} times since event {event}, at most {}", amount(size)),
        }
    }

    /// Returns the stack that requested the memory.
    fn stack(&self, life: &Life) -> Option<StackId> {
        match life.origin {
            Origin::Step(step) => {
                let event = *self.workload.events.get(step)? as usize;
                self.trace.event_stacks.get(event).copied().flatten()
            }
            // An address identifies only memory that was never freed; other addresses may have been
            // reused.
            Origin::Start(index) if life.to.is_none() => {
                let address = self.workload.held.get(index)?.address;
                self.trace.block_stacks.get(&address).copied()
            }
            Origin::Start(_) => None,
        }
    }

    /// Returns the frames of the program itself if its files are known; otherwise all except the
    /// topmost ones that every allocation has.
    fn calls(&self, life: &Life) -> Vec<&Frame> {
        let Some(stack) = self.stack(life) else { return Vec::new() };
        let of_program: Vec<_> = self.stacks.frames(stack).filter(|frame| frame.line > 0).collect();
        if !of_program.is_empty() {
            return of_program;
        }
        let informative: Vec<_> =
            self.stacks.frames(stack).skip_while(|call| is_usual(call)).collect();
        if informative.is_empty() { self.stacks.frames(stack).collect() } else { informative }
    }

    /// Returns the call site of an allocation: the innermost frame outside libraries, or, if there
    /// are only C++ frames, the step of the backward pass.
    pub(super) fn asked_by(&self, life: &Life) -> Option<String> {
        let calls = self.calls(life);
        let is_own = |call: &&&Frame| call.line > 0 && !call.file.contains("-packages/");
        let is_backward = |call: &&&Frame| call.function.contains("torch::autograd::generated::");
        let own = calls.iter().find(is_own).or_else(|| calls.iter().find(is_backward));
        own.or(calls.first()).map(|frame| call(frame))
    }

    /// Describes an allocation, with one fact per line.
    pub(super) fn life_words(&self, life: &Life) -> String {
        let mut lines = vec![self.life_line(life)];
        let calls = self.calls(life);
        lines.extend(calls.iter().take(MAX_CALLS).map(|frame| call(frame)));
        if calls.len() > MAX_CALLS {
            lines.push(format!("and {} calls above", calls.len() - MAX_CALLS));
        }
        lines.join("\n")
    }

    fn life_line(&self, life: &Life) -> String {
        let event = |time: usize| thousands(self.event_at(time) as u64);
        let from = match life.origin {
            Origin::Start(_) => "allocated before recording".to_owned(),
            Origin::Step(_) => format!("from event {}", event(life.from)),
        };
        let to = life
            .to
            .map_or("live at the end".to_owned(), |to| format!("free at event {}", event(to)));
        format!("{}, {from}, {to}", amount(Bytes(life.size)))
    }
}

/// Formats a frame as `function, folder/file.py:17`, escaped.
fn call(frame: &Frame) -> String {
    let mut parts = frame.file.rsplit(['/', '\\']);
    let file = match (parts.next(), parts.next()) {
        (Some(file), Some(dir)) if !dir.is_empty() => format!("{dir}/{file}"),
        (Some(file), _) => file.to_owned(),
        _ => String::new(),
    };
    let location = match (file.as_str(), frame.line) {
        ("" | "??", _) => String::new(),
        (file, 0) => format!(", {file}"),
        (file, line) => format!(", {file}:{line}"),
    };
    let function = match frame.line {
        0 => without_arguments(&frame.function),
        _ => &frame.function,
    };
    escape_markup(&format!("{function}{location}"), MAX_CALL_CHARS)
}

/// Returns whether a frame belongs to PyTorch's recorder, to its allocator, or to tensor creation.
fn is_usual(call: &Frame) -> bool {
    const USUAL: [&str; 5] = [
        "torch::unwind::",
        "torch::CapturedTraceback",
        "gather_with_cpp",
        "CUDACachingAllocator",
        "at::detail::",
    ];
    USUAL.iter().any(|name| call.function.contains(name))
}

/// Returns the name of a C++ function without its parameter types.
fn without_arguments(function: &str) -> &str {
    let is_part = |rest: &str| rest.starts_with("(anonymous namespace)") || rest.starts_with("()");
    let end = function.match_indices('(').find(|(at, _)| *at > 0 && !is_part(&function[*at..]));
    end.map_or(function, |(at, _)| &function[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpp_functions_are_shown_without_arguments() {
        for (function, shown) in [
            (
                "at::_ops::bmm::call(at::Tensor const&, (anonymous namespace)::X)",
                "at::_ops::bmm::call",
            ),
            (
                "at::(anonymous namespace)::create_out(long)",
                "at::(anonymous namespace)::create_out",
            ),
            (
                "torch::autograd::Node::operator()(std::vector<T>&&)",
                "torch::autograd::Node::operator()",
            ),
            ("main", "main"),
            ("(unknown)", "(unknown)"),
            ("", ""),
        ] {
            assert_eq!(without_arguments(function), shown);
        }
    }

    #[test]
    fn frames_are_shown_with_their_folder_and_line() {
        for (function, file, line, shown) in [
            ("f", "/home/ann/train.py", 7, "f, ann/train.py:7"),
            ("f", "train.py", 7, "f, train.py:7"),
            ("f", "/train.py", 7, "f, train.py:7"),
            ("f", "C:\\ann\\train.py", 7, "f, ann/train.py:7"),
            ("f", "??", 0, "f"),
            ("f", "", 3, "f"),
            ("f(int)", "x.cpp", 0, "f, x.cpp"),
            ("f(int)", "x.cpp", 1, "f(int), x.cpp:1"),
        ] {
            let frame = Frame { function: function.into(), file: file.into(), line };
            assert_eq!(call(&frame), shown);
        }
    }
}
