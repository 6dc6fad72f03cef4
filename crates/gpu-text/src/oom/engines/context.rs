//! What the text around a message shows: the engine, its phase, and figures printed before.

use super::super::event::{Event, Framework};
use super::Fact;
use crate::oom::short::Short;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The maximum number of notes kept.
const MAX_NOTES: usize = 64;

/// The distance before a message in which the reader searches for its engine and phase, in bytes.
const NEAR: usize = 6000;

/// The maximum number of clues before a message that are searched.
const MAX_CLUES: usize = 150;

/// The number of lines after a message within which further text refers to it.
const MAX_LINES_AFTER: usize = 400;

/// A clue in the log to the source of a later message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::oom) enum Clue {
    /// The message comes from this engine.
    Engine(Framework),
    /// The engine was in a phase that needs this memory.
    Phase(Short),
}

/// Words in paths, functions and log lines, with the clue each gives.
const CLUES: &[(&str, Clue)] = &[
    ("vllm", Clue::Engine(Framework::Vllm)),
    ("aphrodite", Clue::Engine(Framework::Vllm)),
    ("sglang", Clue::Engine(Framework::SgLang)),
    ("tensorrt_llm", Clue::Engine(Framework::TensorRtLlm)),
    ("text_generation_server", Clue::Engine(Framework::Tgi)),
    ("text_generation_launcher", Clue::Engine(Framework::Tgi)),
    ("ollama", Clue::Engine(Framework::Ollama)),
    ("llama runner process", Clue::Engine(Framework::Ollama)),
    ("llama-server process has", Clue::Engine(Framework::Ollama)),
    ("sched.go:", Clue::Engine(Framework::Ollama)),
    ("server.go:", Clue::Engine(Framework::Ollama)),
    ("Failed to load model - not enough GPU memory", Clue::Engine(Framework::Vllm)),
    ("Failed to load model - not enough GPU memory", Clue::Phase(Short::Weights)),
    ("lmdeploy", Clue::Engine(Framework::LmDeploy)),
    ("ComfyUI", Clue::Engine(Framework::ComfyUi)),
    ("exllamav2", Clue::Engine(Framework::ExLlama)),
    ("exllamav3", Clue::Engine(Framework::ExLlama)),
    ("Capture CUDA graph failed", Clue::Engine(Framework::SgLang)),
    ("Capture cuda graph failed", Clue::Engine(Framework::SgLang)),
    ("Capture CUDA graph failed", Clue::Phase(Short::Graphs)),
    ("Capture cuda graph failed", Clue::Phase(Short::Graphs)),
    ("load_model", Clue::Phase(Short::Weights)),
    ("load_weights", Clue::Phase(Short::Weights)),
    ("init_memory_pool", Clue::Phase(Short::Cache)),
    ("memory_pool", Clue::Phase(Short::Cache)),
    ("initialize_kv_cache", Clue::Phase(Short::Cache)),
    ("_allocate_kv_cache_tensors", Clue::Phase(Short::Cache)),
    ("_create_buffers", Clue::Phase(Short::Cache)),
    ("profile_run", Clue::Phase(Short::Compute)),
    ("execute_model", Clue::Phase(Short::Compute)),
    ("forward_batch_generation", Clue::Phase(Short::Compute)),
    ("capture_model", Clue::Phase(Short::Graphs)),
    ("capture_end", Clue::Phase(Short::Graphs)),
    ("cuda_graph_runner", Clue::Phase(Short::Graphs)),
    ("Capturing", Clue::Phase(Short::Graphs)),
    ("cumem_allocator", Clue::Phase(Short::WakeUp)),
    ("wake_up", Clue::Phase(Short::WakeUp)),
];

/// The clues in a piece of a log, by position.
#[derive(Debug, Default)]
pub(in crate::oom) struct Clues(Vec<(usize, Clue)>);

impl Clues {
    /// Records the clues of the word at a position, given the text from there.
    pub(in crate::oom) fn note_word(&mut self, at: usize, word: &str, rest: &str) {
        static BY_WORD: LazyLock<HashMap<&str, Vec<(&str, Clue)>>> = LazyLock::new(|| {
            let mut clues: HashMap<_, Vec<_>> = HashMap::new();
            for (phrase, clue) in CLUES {
                let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
                let word = phrase.split(is_end).next().unwrap_or_default();
                clues.entry(word).or_default().push((*phrase, *clue));
            }
            clues
        });
        let known = BY_WORD.get(word).into_iter().flatten();
        let known = known.filter(|(phrase, _)| rest.starts_with(phrase));
        self.0.extend(known.map(|(_, clue)| (at, *clue)));
    }

    pub(in crate::oom) fn note(&mut self, at: usize, clue: Clue) {
        self.0.push((at, clue));
    }

    /// Sorts the clues by position; call this before [`Clues::before`].
    pub(in crate::oom) fn sort(&mut self) {
        self.0.sort_by_key(|(at, _)| *at);
    }

    /// Returns the engine and phase at a position, from the nearest clues before it.
    pub(in crate::oom) fn before(&self, at: usize) -> (Option<Framework>, Option<Short>) {
        let end = self.0.partition_point(|(known, _)| *known <= at);
        let near = || self.0[..end].iter().rev().take(MAX_CLUES);
        let near = || near().take_while(|(known, _)| at - known <= NEAR);
        let engine = near().find_map(|(_, clue)| match clue {
            Clue::Engine(engine) => Some(*engine),
            Clue::Phase(_) => None,
        });
        let phase = near().find_map(|(_, clue)| match clue {
            Clue::Phase(short) => Some(*short),
            Clue::Engine(_) => None,
        });
        (engine, phase.filter(|_| engine.is_some()))
    }
}

/// Figures that programs printed before any failure.
#[derive(Debug, Default)]
pub(in crate::oom) struct Notes(Vec<Event>);

impl Notes {
    /// Keeps the figures of a line; a later line with the same figures replaces it.
    pub(super) fn keep(&mut self, note: Event) {
        let holes = |event: &Event| -> Vec<Fact> { event.facts.keys().copied().collect() };
        let is_same = |known: &Event| {
            (known.framework, known.gpu, known.total.is_some())
                == (note.framework, note.gpu, note.total.is_some())
                && holes(known) == holes(&note)
        };
        match self.0.iter().position(is_same) {
            Some(index) => self.0[index] = note,
            None if self.0.len() < MAX_NOTES => self.0.push(note),
            None => {}
        }
    }

    /// Adds the figures of the same program and device to a message.
    pub(in crate::oom) fn fill(&self, event: &mut Event) {
        let program = event.engine.unwrap_or(event.framework);
        let fits = |note: &&Event| {
            note.is_of(program)
                && (note.gpu.is_none() || event.gpu.is_none() || note.gpu == event.gpu)
        };
        // The latest line counts.
        let mut notes: Vec<&Event> = self.0.iter().filter(fits).collect();
        notes.sort_by_key(|note| std::cmp::Reverse(note.line));
        for note in notes {
            event.fill_from(note);
        }
    }
}

impl Event {
    /// Adds figures that this event lacks from another line of the same program.
    pub(in crate::oom) fn fill_from(&mut self, other: &Event) {
        let pairs = [
            (&mut self.tried, &other.tried),
            (&mut self.total, &other.total),
            (&mut self.limit, &other.limit),
            (&mut self.needed, &other.needed),
            (&mut self.allocated, &other.allocated),
            (&mut self.free, &other.free),
        ];
        for (own, others) in pairs {
            if own.is_none() {
                own.clone_from(others);
            }
        }
        for (fact, value) in &other.facts {
            self.facts.entry(*fact).or_insert(*value);
        }
        self.part = self.part.take().or_else(|| other.part.clone());
        self.gpu = self.gpu.or(other.gpu);
        self.backend = self.backend.take().or_else(|| other.backend.clone());
    }

    /// Returns whether the event comes from a program, or from one that the program is built on.
    pub(in crate::oom) fn is_of(&self, program: Framework) -> bool {
        let root = |framework| match framework {
            Framework::Ollama => Framework::LlamaCpp,
            Framework::Jax => Framework::Xla,
            Framework::Slurm | Framework::Kubelet => Framework::Kernel,
            other => other,
        };
        root(self.engine.unwrap_or(self.framework)) == root(program)
    }

    /// Returns whether text on a line is near enough to refer to this event.
    pub(in crate::oom) fn is_near(&self, line: usize) -> bool {
        line.abs_diff(self.line) <= MAX_LINES_AFTER
    }

    /// Returns whether the message has a size of the request or the device.
    pub(in crate::oom) fn has_sizes(&self) -> bool {
        let sizes = [&self.tried, &self.free, &self.total, &self.needed, &self.allocated];
        sizes.into_iter().any(Option::is_some) || !self.dump.is_empty()
    }

    /// Returns whether no figure of two messages differs.
    pub(in crate::oom) fn agrees_with(&self, other: &Event) -> bool {
        let common = |fact: &Fact, value: &i64| other.facts.get(fact).is_none_or(|it| it == value);
        self.facts.iter().all(|(fact, value)| common(fact, value))
            && (self.gpu.is_none() || other.gpu.is_none() || self.gpu == other.gpu)
    }
}
