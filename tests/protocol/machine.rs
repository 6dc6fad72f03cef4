//! The machine: its directories, the claims on its devices, and the actions of strangers and of the
//! kernel.

use crate::claimant::{
    Claimant, Layout, Phase, RULES, Reader, Reading, Rules, Setup, entry_of, job, kept_of,
    place_of, strangers_entries, supervisor,
};
use crate::dir::{Dir, Dirs, File, Inode, Name};
use crate::explore::{CLAIMANTS, Model, Step};
use crate::property;
use crate::rule::{Seen, Verdict};
use crate::stranger;

/// The abilities of the stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    Absent,
    /// Its directory may contain anything at any time, without bound.
    Anything,
    /// It makes this many moves with any file in any directory, as far as the kernel permits.
    Moves(u8),
}

/// Whether waiting claims stall, so that other claims pass them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stalls {
    Never,
    /// Stalled claims may continue later.
    ForAWhile,
    ForGood,
}

/// The configuration to explore.
pub(crate) struct Machine {
    pub(crate) setups: Vec<Setup>,
    pub(crate) rules: Rules,
    pub(crate) stranger: Stranger,
    pub(crate) protected_hardlinks: bool,
    /// The maximum number of tries that each claim may publish; unlimited if `None`.
    pub(crate) attempts: Option<u8>,
    /// Whether a claim reads before it tries; otherwise it may try any devices, regardless of what
    /// it could have read.
    pub(crate) decides: bool,
    pub(crate) queue: bool,
    /// Whether claims, jobs and supervisors may die at any time.
    pub(crate) deaths: bool,
    pub(crate) stalls: Stalls,
    /// The maximum number of times that each claim withdraws because later tries stay; unlimited if
    /// `None`.
    pub(crate) timeouts: Option<u8>,
    pub(crate) releases: bool,
    /// Whether directories are read in either order.
    pub(crate) both_ways: bool,
    /// Whether the directories of users must be created first.
    pub(crate) directories: bool,
    /// Whether claims remember what they have read, and may use it instead of querying the kernel.
    pub(crate) remembers: bool,
}

impl Machine {
    pub(crate) fn new(setups: Vec<Setup>) -> Self {
        Machine {
            setups,
            rules: RULES,
            stranger: Stranger::Absent,
            protected_hardlinks: true,
            attempts: Some(1),
            decides: false,
            queue: false,
            deaths: false,
            stalls: Stalls::Never,
            timeouts: Some(0),
            releases: true,
            both_ways: false,
            directories: false,
            remembers: false,
        }
    }

    fn reader(&self, me: usize) -> Reader<'_> {
        Reader {
            setups: &self.setups,
            rules: &self.rules,
            strangers_files: matches!(self.stranger, Stranger::Moves(_)),
            queue: self.queue,
            remembers: self.remembers,
            me,
        }
    }

    /// The inode of the first version's table.
    pub(crate) fn table(&self) -> Inode {
        entry_of(self.setups.len())
    }
}

/// A state of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) dirs: Dirs,
    pub(crate) claimants: Vec<Claimant>,
    /// The stranger's remaining moves.
    pub(crate) moves: u8,
}

/// Collects the steps from one state.
pub(crate) struct Steps<'a> {
    pub(crate) from: &'a State,
    rules: &'a Rules,
    words: bool,
    steps: &'a mut Vec<Step<State>>,
}

impl Steps<'_> {
    pub(crate) fn add(
        &mut self,
        who: u8,
        words: impl FnOnce() -> String,
        after: impl FnOnce(&mut State) -> bool,
    ) {
        let mut state = self.from.clone();
        if after(&mut state) {
            for dir in state.dirs.take_changed() {
                state.claimants.iter_mut().for_each(|claimant| claimant.notice(dir, self.rules));
            }
            let words = if self.words { words() } else { String::new() };
            self.steps.push(Step { who, words, after: Ok(state) });
        }
    }
}

impl Model for Machine {
    type State = State;

    fn initial(&self) -> State {
        let mut dirs = Dirs::new(self.protected_hardlinks);
        if self.directories {
            dirs = dirs.without(self.setups.iter().map(|setup| setup.owner).collect());
        }
        if self.rules.layout == Layout::Flat {
            let owner = self.setups[0].owner;
            let file = File { owner, all_write: true, text: None, author: owner, locked: 0 };
            dirs.create(owner, Dir::Shared, Name::Table, self.table(), file);
        }
        drop(dirs.take_changed());
        let attempts = self.attempts.unwrap_or(1);
        let moves = if let Stranger::Moves(moves) = self.stranger { moves } else { 0 };
        State { dirs, claimants: vec![Claimant::new(attempts); self.setups.len()], moves }
    }

    fn steps(&self, state: &State, words: bool, steps: &mut Vec<Step<State>>) {
        let mut steps = Steps { from: state, rules: &self.rules, words, steps };
        for me in 0..self.setups.len() {
            self.steps_of(me, &mut steps);
        }
        if state.moves > 0 {
            stranger::moves(self, &mut steps);
        }
    }

    fn violation(&self, state: &State) -> Option<String> {
        property::double_grant(self, state)
    }

    /// Returns whether a claim waits although no lease exists that it could be waiting for.
    fn is_open(&self, state: &State) -> bool {
        let rests = |claimant: &Claimant| claimant.phase == Phase::Over || claimant.stalled;
        !state.claimants.iter().all(rests) && !state.claimants.iter().any(Claimant::is_confirmed)
    }
}

impl Machine {
    fn steps_of(&self, me: usize, steps: &mut Steps<'_>) {
        let claimant = &steps.from.claimants[me];
        if self.deaths {
            self.death(me, steps);
        }
        if self.stalls != Stalls::Never {
            self.stall(me, steps);
        }
        if claimant.stalled {
            return;
        }
        match &claimant.phase {
            Phase::Idle => self.start(me, steps),
            Phase::Deciding(reading) => self.read(me, reading, true, steps),
            Phase::Decided => self.publish(me, claimant.devices, steps),
            Phase::Confirming(reading) => self.read(me, reading, false, steps),
            Phase::Allowed => self.confirm(me, steps),
            Phase::Leaving => steps.add(
                me as u8,
                || format!("{me} withdraws: unlinks try-{me}, then unlocks it"),
                |state| {
                    self.end_entry(state, me, Name::Try(me as u8));
                    state.claimants[me].phase = self.after_attempt(state, me);
                    true
                },
            ),
            Phase::Leased { job } => self.hold(me, *job, steps),
            Phase::Orphaned | Phase::Over => {}
        }
    }

    fn after_attempt(&self, state: &State, me: usize) -> Phase {
        match state.claimants[me].attempts {
            0 => Phase::Over,
            _ => Phase::Idle,
        }
    }

    fn start(&self, me: usize, steps: &mut Steps<'_>) {
        let claimant = &steps.from.claimants[me];
        let who = me as u8;
        // The job of a lease makes the claim within it.
        let outer = self.setups[me].within.map(|outer| &steps.from.claimants[usize::from(outer)]);
        if outer.is_some_and(|outer| !matches!(outer.phase, Phase::Leased { .. })) {
            return;
        }
        let owner = self.setups[me].owner;
        if steps.from.dirs.is_missing(owner) {
            steps.add(
                who,
                || format!("{me} makes the directory of user {owner}, mode 0700 by its umask"),
                |state| {
                    state.dirs.make_dir(owner);
                    state.claimants[me].made = true;
                    true
                },
            );
        } else if steps.from.dirs.is_closed(owner)
            && (claimant.made || !self.rules.trusts_directory)
        {
            steps.add(
                who,
                || format!("{me} gives the directory of user {owner} the mode 0755"),
                |state| {
                    state.dirs.open_dir(owner);
                    true
                },
            );
        } else if self.queue && !claimant.queued {
            let reader = self.reader(me);
            let mut text = reader.text(self.setups[me].count);
            text.within = None;
            steps.add(
                who,
                || format!("{me} queues with ticket {}", self.setups[me].ticket),
                |state| {
                    state.claimants[me].queued = true;
                    let file = reader.file(Some(text));
                    let owner = self.setups[me].owner;
                    state.dirs.create(owner, reader.home(), Name::Queue(who), place_of(me), file)
                },
            );
        } else if self.decides {
            self.read(me, &Reading::new(0), true, steps);
        } else {
            let outer = outer.map(|outer| outer.devices);
            for devices in self.reader(me).any(outer) {
                self.publish(me, devices, steps);
            }
        }
    }

    fn publish(&self, me: usize, devices: u8, steps: &mut Steps<'_>) {
        let reader = self.reader(me);
        let (owner, home, id) = (self.setups[me].owner, reader.home(), me as u8);
        steps.add(
            me as u8,
            || format!("{me} publishes try-{me} on devices {devices:02b} as user {owner}"),
            |state| {
                if self.attempts.is_some() {
                    state.claimants[me].attempts -= 1;
                }
                let claimant = &mut state.claimants[me];
                claimant.devices = devices;
                claimant.phase = match self.rules.readings {
                    0 => Phase::Allowed,
                    _ => Phase::Confirming(Reading::new(1)),
                };
                let dirs = &mut state.dirs;
                let kept = reader.file(None);
                let entry = reader.file(Some(reader.text(devices)));
                let made = dirs.create(owner, home, Name::Kept(id), kept_of(me), kept)
                    && dirs.create(owner, home, Name::Try(id), entry_of(me), entry);
                if !made {
                    // A stranger has taken the name, so the claim needs another ID, which is
                    // another claim in this model.
                    self.end_entry(state, me, Name::Try(id));
                    state.claimants[me].phase = Phase::Over;
                }
                true
            },
        );
    }

    fn read(&self, me: usize, reading: &Reading, deciding: bool, steps: &mut Steps<'_>) {
        let reader = self.reader(me);
        let ways = 1 + u8::from(self.both_ways && !reading.begun && reader.listing().len() > 1);
        let recalls = [false, true].into_iter().filter(|recall| self.remembers || !recall);
        let choices = recalls.flat_map(|recall| (0..ways).map(move |way| (recall, way == 1)));
        for (recalls, backwards) in choices {
            let mut after = steps.from.clone();
            let mut reading = reading.clone();
            if !reading.begun {
                reading.must = property::published(&after, me);
                reading.must_wait = property::waiting(self, &after, me);
            }
            let mut words = format!("{me} ");
            let who = me as u8;
            let memory = &mut after.claimants[me].memory;
            let stepped = if recalls {
                words.push_str("remembers what it has read");
                match reader.recall(&mut reading, deciding, backwards, memory) {
                    Some(is_complete) => Ok(is_complete),
                    None => continue,
                }
            } else {
                let description = steps.words.then_some(&mut words);
                reader.step(&after.dirs, &mut reading, deciding, backwards, memory, description)
            };
            match stepped {
                Err(violated) => steps.steps.push(Step { who, words, after: Err(violated) }),
                Ok(false) => {
                    after.claimants[me].phase = if deciding {
                        Phase::Deciding(reading)
                    } else {
                        Phase::Confirming(reading)
                    };
                    steps.steps.push(Step { who, words, after: Ok(after) });
                }
                Ok(true) => self.complete(me, &reading, after, deciding, &words, steps),
            }
        }
    }

    /// Applies the result of a reading; others cannot observe it before the next step.
    fn complete(
        &self,
        me: usize,
        reading: &Reading,
        read: State,
        deciding: bool,
        words: &str,
        steps: &mut Steps<'_>,
    ) {
        let who = me as u8;
        if let Some(violated) = property::missed(self, &read, me, reading) {
            steps.steps.push(Step { who, words: words.to_owned(), after: Err(violated) });
            return;
        }
        let reader = self.reader(me);
        let stranger = self.setups.len() as u8;
        for word in strangers_entries(self.stranger == Stranger::Anything, stranger) {
            let mut seen: Vec<Seen> = reading.seen.clone();
            seen.extend(word);
            let mut after = read.clone();
            let claimant = &mut after.claimants[me];
            let mut description = words.to_owned();
            if deciding {
                let devices = reader.decide(&seen);
                if steps.words {
                    description += &format!("; decides on {devices:?}");
                }
                claimant.phase = Phase::Idle;
                if let Some(devices) = devices {
                    (claimant.devices, claimant.phase) = (devices, Phase::Decided);
                    if let Some(violated) = property::passed(self, me, devices, &seen, reading) {
                        steps.steps.push(Step { who, words: description, after: Err(violated) });
                        continue;
                    }
                    if self.rules.leaves_queue_early {
                        after.dirs.unlink(self.setups[me].owner, reader.home(), Name::Queue(who));
                        after.dirs.unlock(place_of(me));
                        drop(after.dirs.take_changed());
                    }
                }
                steps.steps.push(Step { who, words: description, after: Ok(after) });
                continue;
            }
            let verdict = reader.judge(claimant.devices, &seen);
            if steps.words {
                description += &format!("; reading {} says {verdict:?}", reading.round);
            }
            if let Some(violated) = property::starved(self, me, claimant.devices, &seen, verdict) {
                steps.steps.push(Step { who, words: description, after: Err(violated) });
                continue;
            }
            claimant.phase = match verdict {
                Verdict::Confirm if reading.round >= self.rules.readings => Phase::Allowed,
                Verdict::Confirm => Phase::Confirming(Reading::new(reading.round + 1)),
                Verdict::Again => Phase::Confirming(Reading::new(1)),
                Verdict::Withdraw | Verdict::Refused => Phase::Leaving,
            };
            let over = verdict == Verdict::Again
                && self.timeouts.is_none_or(|timeouts| claimant.timeouts < timeouts);
            if over {
                let mut late = after.clone();
                let claimant = &mut late.claimants[me];
                claimant.phase = Phase::Leaving;
                claimant.timeouts += u8::from(self.timeouts.is_some());
                let words = format!("{description}; its patience is over");
                steps.steps.push(Step { who, words, after: Ok(late) });
            }
            steps.steps.push(Step { who, words: description, after: Ok(after) });
        }
    }

    fn confirm(&self, me: usize, steps: &mut Steps<'_>) {
        let reader = self.reader(me);
        let (home, id, owner) = (reader.home(), me as u8, self.setups[me].owner);
        steps.add(
            me as u8,
            || format!("{me} confirms: renames try-{me} to lease-{me}"),
            |state| {
                let named =
                    state.dirs.rename(owner, (home, Name::Try(id)), (home, Name::Lease(id)));
                state.claimants[me].phase =
                    if named { Phase::Leased { job: false } } else { Phase::Leaving };
                true
            },
        );
    }

    fn hold(&self, me: usize, job: bool, steps: &mut Steps<'_>) {
        let reader = self.reader(me);
        let (owner, who) = (self.setups[me].owner, me as u8);
        if self.queue && steps.from.claimants[me].queued {
            steps.add(
                who,
                || format!("{me} leaves the queue"),
                |state| {
                    state.dirs.unlink(owner, reader.home(), Name::Queue(who));
                    state.dirs.unlock(place_of(me));
                    state.claimants[me].queued = false;
                    property::no_longer_waits(state, me);
                    true
                },
            );
            return;
        }
        if self.deaths && !job {
            steps.add(
                who,
                || format!("{me} starts its job, which inherits kept-{me}"),
                |state| {
                    state.dirs.inherit(kept_of(me), crate::claimant::job(me));
                    state.claimants[me].phase = Phase::Leased { job: true };
                    true
                },
            );
        }
        if self.releases {
            steps.add(
                who,
                || format!("{me} releases its lease"),
                |state| {
                    self.end_entry(state, me, Name::Lease(who));
                    state.claimants[me].phase = Phase::Over;
                    true
                },
            );
        }
    }

    /// Removes the names, then unlocks the file for all processes that inherited it.
    fn end_entry(&self, state: &mut State, me: usize, name: Name) {
        let (owner, home) = (self.setups[me].owner, self.reader(me).home());
        for (name, inode) in [(name, entry_of(me)), (Name::Kept(me as u8), kept_of(me))] {
            if state.dirs.at(home, name) == Some(inode) {
                state.dirs.unlink(owner, home, name);
            }
            state.dirs.unlock(inode);
        }
        property::no_longer_published(state, me);
    }

    /// The kernel ends a process, and with it every lock that no other process holds.
    fn death(&self, me: usize, steps: &mut Steps<'_>) {
        let claimant = &steps.from.claimants[me];
        match claimant.phase {
            Phase::Over => {}
            Phase::Idle if !claimant.queued => {}
            Phase::Orphaned => steps.add(
                CLAIMANTS,
                || format!("{me}'s job ends"),
                |state| {
                    state.dirs.end(job(me));
                    state.claimants[me].phase = Phase::Over;
                    property::no_longer_published(state, me);
                    true
                },
            ),
            Phase::Leased { job: true } => steps.add(
                CLAIMANTS,
                || format!("{me} is killed, its job lives"),
                |state| {
                    state.dirs.end(supervisor(me));
                    state.claimants[me].phase = Phase::Orphaned;
                    true
                },
            ),
            _ => steps.add(
                CLAIMANTS,
                || format!("{me} is killed"),
                |state| {
                    state.dirs.end(supervisor(me));
                    let claimant = &mut state.claimants[me];
                    (claimant.phase, claimant.queued) = (Phase::Over, false);
                    property::no_longer_published(state, me);
                    property::no_longer_waits(state, me);
                    true
                },
            ),
        }
    }

    /// Other claims pass a waiting claim that does not renew its place, until it does.
    fn stall(&self, me: usize, steps: &mut Steps<'_>) {
        let claimant = &steps.from.claimants[me];
        let waits = claimant.queued
            && matches!(claimant.phase, Phase::Idle | Phase::Deciding(_) | Phase::Decided);
        if claimant.stalled && self.stalls == Stalls::ForAWhile {
            steps.add(
                CLAIMANTS,
                || format!("{me} continues"),
                |state| {
                    state.claimants[me].stalled = false;
                    state.dirs.inherit(place_of(me), supervisor(me));
                    true
                },
            );
        } else if waits && !claimant.stalled {
            steps.add(
                CLAIMANTS,
                || format!("{me} is stopped"),
                |state| {
                    state.claimants[me].stalled = true;
                    property::no_longer_waits(state, me);
                    // The model uses one mark for both `alive` and `renewed`.
                    state.dirs.release(place_of(me));
                    true
                },
            );
        }
    }
}
