//! The attacker: an unprivileged user that tries everything, in steps determined by a seed.

use super::layout::Layout;
use super::status::Status;
use super::steps::{self, STEPS};
use gpu_core::{Clock, LeaseEntry, LeaseGuard};
use gpu_host::{FileLeaseStore, SystemClock};
use gpuws_tests::Chance;
use rustix::fd::OwnedFd;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// The maximum number of library-made entries to hold, ...
const HELD: usize = 40;
/// ... files to keep open, ...
const FILES: usize = 80;
/// ... and entries of other users to remember.
const KNOWN: usize = 32;

/// The number of steps during which it leases every device.
const GREEDY: u32 = 150;

/// The state of an attacker.
pub(crate) struct Attacker {
    pub(crate) layout: Layout,
    pub(crate) locks: FileLeaseStore,
    pub(crate) chance: Chance,
    pub(crate) clock: SystemClock,
    pub(crate) uid: u32,
    /// The honest users under attack.
    pub(crate) victims: [u32; 2],
    /// Entries that the library made for the attacker.
    pub(crate) held: Vec<Box<dyn LeaseGuard>>,
    /// Open files, most of them locked.
    pub(crate) files: Vec<OwnedFd>,
    /// Files of the largest leases, all locked.
    pub(crate) crowd: Vec<File>,
    /// Entries of honest users that it has seen.
    pub(crate) known: Vec<LeaseEntry>,
    /// A process that keeps files from being opened.
    pub(crate) keeper: Option<Child>,
    /// The number of remaining steps during which it leases every device.
    pub(crate) greedy: u32,
    canaries: Vec<(u64, u64)>,
}

/// Takes a number of steps, then keeps everything until it is killed.
pub(crate) fn attack(layout: &Layout, seed: u64, steps: u64, honest: u32) {
    let canary = |path: PathBuf| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let mut attacker = Attacker {
        layout: layout.clone(),
        locks: layout.locks(),
        chance: Chance::new(seed),
        clock: SystemClock::new(),
        uid: rustix::process::geteuid().as_raw(),
        victims: [0, honest],
        held: Vec::new(),
        files: Vec::new(),
        crowd: Vec::new(),
        known: Vec::new(),
        keeper: None,
        greedy: 0,
        canaries: layout.canaries().into_iter().filter_map(canary).collect(),
    };
    let output = rustix::io::dup(std::io::stdout()).expect("the test passed a file");
    let mut status = Status::new(File::from(output));
    let total: u64 = STEPS.iter().map(|(_, weight, _)| weight).sum();
    for _ in 0..steps {
        let mut at = attacker.chance.below(total);
        let mut chosen = STEPS.iter().skip_while(|(_, weight, _)| {
            let is_later = at >= *weight;
            at = at.saturating_sub(*weight);
            is_later
        });
        let (kind, _, step) = chosen.next().expect("the weights add up to the total");
        let (words, result) = step(&mut attacker);
        status.note(kind, &words, &result);
        attacker.change_strategy();
        // Gives other processes a chance to see this step before the next one.
        if attacker.chance.one_in(3) {
            let pause = Duration::from_micros(attacker.chance.below(3000));
            attacker.clock.sleep(pause);
        }
    }
    status.summarize(true);
    loop {
        attacker.clock.sleep(Duration::from_secs(60));
    }
}

impl Attacker {
    fn change_strategy(&mut self) {
        if self.greedy > 0 {
            self.greedy -= 1;
            if self.greedy == 0 {
                // From now on, honest claims must be served.
                self.held.clear();
                self.files.clear();
                self.crowd.clear();
            }
        } else if self.chance.one_in(2500) {
            self.greedy = GREEDY;
        }
    }

    /// Keeps an entry made by the library.
    pub(crate) fn hold(&mut self, held: Box<dyn LeaseGuard>) {
        if self.held.len() >= HELD {
            let which = self.chance.index(self.held.len());
            drop(self.held.swap_remove(which));
        }
        self.held.push(held);
    }

    /// Keeps a file open.
    pub(crate) fn keep(&mut self, file: impl Into<OwnedFd>) {
        if self.files.len() >= FILES {
            let which = self.chance.index(self.files.len());
            drop(self.files.swap_remove(which));
        }
        self.files.push(file.into());
    }

    /// Remembers an entry.
    pub(crate) fn remember(&mut self, entry: LeaseEntry) {
        if self.known.len() >= KNOWN {
            let which = self.chance.index(self.known.len());
            self.known.swap_remove(which);
        }
        self.known.push(entry);
    }

    /// Returns the ID of an honest entry or one of its own.
    pub(crate) fn id(&mut self) -> String {
        if !self.known.is_empty() && self.chance.one_in(2) {
            let which = self.chance.index(self.known.len());
            return self.known[which].id.to_string();
        }
        format!("f{}", self.chance.below(30))
    }

    /// Returns a shared directory and the prefix for names in it.
    pub(crate) fn shared(&mut self) -> (PathBuf, &'static str) {
        let mut shared = self.layout.shared().to_vec();
        // Occasionally tries one that root has not created yet.
        if !self.chance.one_in(16) {
            shared.retain(|(dir, _)| dir.exists());
        }
        let which = self.chance.index(shared.len());
        shared.swap_remove(which)
    }

    /// Returns its own directory, if it exists.
    pub(crate) fn own_dir(&mut self) -> PathBuf {
        let (shared, prefix) = self.shared();
        let tail = *self.chance.of(&["", "", "", "-1", "-2"]);
        shared.join(format!("{prefix}u{}{tail}", self.uid))
    }

    /// Returns the directory of an honest user, existing or not.
    pub(crate) fn victims_dir(&mut self) -> PathBuf {
        let (shared, prefix) = self.shared();
        let victim = *self.chance.of(&self.victims);
        let tail = *self.chance.of(&["", "", "", "-1", "-00", "x"]);
        shared.join(format!("{prefix}u{victim}{tail}"))
    }

    /// Returns the directory of the attacker or of an honest user, or its queue directory.
    pub(crate) fn any_dir(&mut self) -> PathBuf {
        let dir = if self.chance.one_in(2) { self.own_dir() } else { self.victims_dir() };
        if self.chance.one_in(4) { dir.join("queue") } else { dir }
    }

    /// Returns a name for an entry, matching the directory.
    pub(crate) fn name(&mut self) -> String {
        let kinds = ["lease-", "lease-", "try-", "try-", "kept-", "past-", "wait-", "new-"];
        let kind = *self.chance.of(&kinds);
        let queue = if kind == "wait-" { "queue/" } else { "" };
        format!("{queue}{kind}{}", self.id())
    }

    /// Returns a path for an entry: in its own directory, in that of an honest user, or in the
    /// shared one.
    pub(crate) fn any_path(&mut self) -> PathBuf {
        let name = self.name();
        match self.chance.below(8) {
            0 => self.victims_dir().join(name),
            1 | 2 => {
                let (shared, prefix) = self.shared();
                shared.join(format!("{prefix}{name}"))
            }
            _ => self.own_dir().join(name),
        }
    }

    /// Returns a file in a directory; a nonexistent name if the directory is empty.
    pub(crate) fn file_in(&mut self, dir: &Path) -> PathBuf {
        let queue = dir.join("queue");
        let dir = if self.chance.one_in(4) { &queue } else { dir };
        let files = fs::read_dir(dir).into_iter().flatten().flatten();
        let names: Vec<PathBuf> = files.take(200).map(|file| file.path()).collect();
        if names.is_empty() {
            return dir.join("none");
        }
        let which = self.chance.index(names.len());
        names.into_iter().nth(which).expect("the index is valid")
    }

    /// Returns a file to damage: its own, an honest user's, or safe-gpu's.
    pub(crate) fn any_file(&mut self) -> PathBuf {
        match self.chance.below(8) {
            0 => self.chance.of(&self.layout.safe_gpu()).clone(),
            1..=3 => {
                let dir = self.victims_dir();
                self.file_in(&dir)
            }
            _ => {
                let dir = self.own_dir();
                self.file_in(&dir)
            }
        }
    }

    /// Returns whether a file must not change, even though the attacker may be permitted to change
    /// it.
    pub(crate) fn is_canary(&self, file: &File) -> bool {
        let known = file.metadata().map(|file| (file.dev(), file.ino()));
        known.is_ok_and(|known| self.canaries.contains(&known))
    }

    /// Creates its own directory and its queue directory.
    pub(crate) fn make_own_dir(&mut self) -> PathBuf {
        let dir = self.own_dir();
        // The directory exists already, or another step has created something else under its name.
        let _ = fs::create_dir(&dir);
        let _ = steps::set_mode(&dir, 0o755);
        let _ = fs::create_dir(dir.join("queue"));
        dir
    }
}
