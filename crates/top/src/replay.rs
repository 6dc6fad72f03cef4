//! Plays a recording in place of a machine.
//!
//! A recording has frames with times. The player has its own time, which runs at a speed and can be
//! set; it shows the last frame at or before that time. After a jump, it also reads the frames
//! before the new one, so that the graphs match.

use crate::frame::{CpuTimes, Frame};
use crate::rows::Device;
use gpu_core::Timestamp;
use std::time::Duration;

/// The frames of a recording, numbered from 0 in the order of their times.
pub trait Recording: Send {
    /// Returns the number of frames, damaged ones included.
    fn count(&self) -> usize;

    /// Returns the time of a frame; `None` if there is no such frame.
    fn time(&mut self, number: usize) -> Option<Timestamp>;

    /// Returns the number of the last frame at or before a time; `None` if all are later.
    fn position(&mut self, time: Timestamp) -> Option<usize>;

    /// Returns a frame; `None` if it is damaged.
    fn frame(&mut self, number: usize) -> Option<Frame>;

    /// Returns the CPU times in a frame; `None` if it is damaged.
    fn cpu_times(&mut self, number: usize) -> Option<CpuTimes>;

    /// Returns the devices of a frame, for the graphs; `None` if it is damaged.
    fn devices(&mut self, number: usize) -> Option<Vec<Device>>;

    /// Returns how many frames were found to be damaged so far.
    fn damaged(&self) -> usize;

    /// Finds the frames that were added since, and returns whether there are any.
    fn refresh(&mut self) -> bool;

    /// Returns the time that a text means, such as `10:00` on the last day.
    ///
    /// # Errors
    /// The expected form, as a phrase; or the times that the recording covers, if the time is
    /// outside of them.
    fn moment(&self, text: &str) -> Result<Timestamp, String>;
}

/// A user's command to a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// This many seconds forward, or back if negative.
    By(i64),
    /// One frame forward, or back; the playback stops.
    Step(i64),
    /// To the first frame.
    First,
    /// To the last frame.
    Last,
    /// To the time that a text means.
    To(String),
    /// Stops or resumes the playback.
    Toggle,
    /// The next higher speed.
    Faster,
    /// The next lower speed.
    Slower,
}

/// The state of the playback.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Playback {
    /// Whether time advances.
    pub plays: bool,
    /// Seconds of the recording per second.
    pub speed: f64,
    /// The last frame is shown.
    pub at_end: bool,
    /// The number of frames that were found to be damaged so far.
    pub damaged: usize,
    /// Why the last command failed, as a phrase.
    pub objection: Option<String>,
}

/// The output of a player.
#[derive(Clone, Debug)]
pub enum Replayed {
    /// The next frame.
    Played(Box<Frame>),
    /// A frame after a jump, and the CPU times in the one before it in the recording.
    Sought(Box<Frame>, Option<CpuTimes>),
    /// The frames before the one of this time, oldest first, for the graphs: the time and the
    /// devices of each.
    Past(Timestamp, Vec<(Timestamp, Vec<Device>)>),
    /// The state of the playback.
    Playback(Playback),
}

/// The speeds, in the order in which keys select them.
const SPEEDS: [f64; 10] = [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 3600.0];
/// How often the recording is searched for new frames when the last one is shown.
const SEARCH: Duration = Duration::from_secs(1);
/// The shortest time between two displayed frames.
const PAUSE: Duration = Duration::from_millis(100);
/// A longer pause of the recorder is skipped.
const GAP_MS: u64 = 30_000;
/// The displayed length of a skipped pause.
const SKIPPED_MS: f64 = 1000.0;
/// How many frames before a jump's target are read for the graphs.
const PAST: usize = 480;
/// How many frames before a position are searched for a readable one.
const SEARCHED: usize = 64;

/// A player of a recording.
pub(crate) struct Player {
    recording: Box<dyn Recording>,
    /// The number of the frame that is shown.
    at: usize,
    /// The number of the last readable frame that a jump went to.
    sought: usize,
    /// The time of the player in milliseconds.
    now: f64,
    playback: Playback,
}

impl Player {
    /// Returns a player at this time, or else at the beginning.
    pub(crate) fn new(
        mut recording: Box<dyn Recording>,
        at: Option<Timestamp>,
        speed: f64,
    ) -> Self {
        let at = at.and_then(|time| recording.position(time)).unwrap_or(0);
        let playback = Playback { plays: true, speed, ..Playback::default() };
        let mut player = Player { recording, at, sought: at, now: 0.0, playback };
        player.set(at);
        player
    }

    fn last(&self) -> usize {
        self.recording.count().saturating_sub(1)
    }

    fn set(&mut self, at: usize) {
        self.at = at.min(self.last());
        self.now = self.recording.time(self.at).map_or(0.0, |time| time.0 as f64);
        self.playback.at_end = self.at == self.last();
    }

    /// Executes a command; returns whether the position has changed.
    pub(crate) fn obey(&mut self, control: Control) -> bool {
        self.playback.objection = None;
        if matches!(control, Control::By(_) | Control::Last | Control::To(_)) {
            self.recording.refresh();
        }
        match control {
            Control::By(seconds) => {
                let time = (self.now + seconds as f64 * 1000.0).max(0.0);
                self.seek(Timestamp(time as u64));
            }
            Control::Step(by) => {
                self.playback.plays = false;
                let at = self.at.saturating_add_signed(isize::try_from(by).unwrap_or(0));
                self.set(at);
            }
            Control::First => self.set(0),
            Control::Last => self.set(self.last()),
            Control::To(text) => match self.recording.moment(&text) {
                Ok(time) => self.seek(time),
                Err(expected) => {
                    self.playback.objection = Some(expected);
                    return false;
                }
            },
            Control::Toggle => {
                self.playback.plays = !self.playback.plays;
                return false;
            }
            Control::Faster => return self.change_speed(1),
            Control::Slower => return self.change_speed(-1),
        }
        true
    }

    fn seek(&mut self, time: Timestamp) {
        let at = self.recording.position(time).unwrap_or(0);
        self.set(at);
        // During a pause of the recorder, the frame before it is shown.
        self.now = self.now.max(time.0 as f64);
        if self.playback.at_end {
            self.set(at);
        }
    }

    fn change_speed(&mut self, by: isize) -> bool {
        let speed = self.playback.speed;
        let next = if by > 0 {
            SPEEDS.into_iter().find(|known| *known > speed)
        } else {
            SPEEDS.into_iter().rev().find(|known| *known < speed)
        };
        self.playback.speed = next.unwrap_or(speed);
        false
    }

    /// Returns the state of the playback.
    pub(crate) fn playback(&mut self) -> Playback {
        // It is reported once; the view shows it until the next key.
        let objection = self.playback.objection.take();
        Playback { damaged: self.recording.damaged(), objection, ..self.playback.clone() }
    }

    /// Returns the frame at the position after a jump.
    pub(crate) fn sought(&mut self) -> Option<Replayed> {
        let Some((at, frame)) = self.readable(0).or_else(|| self.nearest()) else {
            self.playback.objection = Some("no sample near this time can be read".to_owned());
            return None;
        };
        self.sought = at;
        let before = at.checked_sub(1).and_then(|before| self.recording.cpu_times(before));
        Some(Replayed::Sought(Box::new(frame), before))
    }

    /// Returns the devices before the frame that a jump went to.
    pub(crate) fn past(&mut self) -> Option<Replayed> {
        let time = self.recording.time(self.sought)?;
        let before = self.sought.saturating_sub(PAST)..self.sought;
        let frame = |number| Some((self.recording.time(number)?, self.recording.devices(number)?));
        Some(Replayed::Past(time, before.filter_map(frame).collect()))
    }

    /// Returns the last readable frame from `from` to the position.
    fn readable(&mut self, from: usize) -> Option<(usize, Frame)> {
        // Limit the search: a long part may be damaged.
        let from = from.max(self.at.saturating_sub(SEARCHED));
        (from..=self.at).rev().find_map(|number| Some((number, self.recording.frame(number)?)))
    }

    /// Returns a readable frame beyond a long damaged part, earlier frames first. The distance to
    /// the position doubles with each try, so that no part takes long.
    fn nearest(&mut self) -> Option<(usize, Frame)> {
        let distances =
            || std::iter::successors(Some(SEARCHED), |distance| distance.checked_mul(2));
        let (at, last) = (self.at, self.last());
        let back = distances().map_while(|distance| at.checked_sub(distance)).chain([0]);
        let on = distances().map_while(|distance| at.checked_add(distance).filter(|at| *at < last));
        let mut all = back.chain(on).chain([last]);
        all.find_map(|number| Some((number, self.recording.frame(number)?)))
    }

    /// Returns the time of the next frame that has one: a day may have been removed.
    fn next(&mut self) -> Option<Timestamp> {
        (self.at + 1..self.recording.count()).find_map(|number| self.recording.time(number))
    }

    /// Returns when to continue; `None` if time stands still.
    pub(crate) fn wait(&mut self) -> Option<Duration> {
        if !self.playback.plays {
            return None;
        }
        if self.playback.at_end {
            return Some(SEARCH);
        }
        let left = self.next()?.0 as f64 - self.now;
        let left = if left > GAP_MS as f64 { SKIPPED_MS } else { left.max(0.0) };
        Some(Duration::from_secs_f64(left / 1000.0 / self.playback.speed).max(PAUSE))
    }

    /// Advances the time; returns the frame to show then. At the end, the recording may have grown.
    pub(crate) fn advance(&mut self, elapsed: Duration) -> Option<Replayed> {
        if !self.playback.plays {
            return None;
        }
        if self.playback.at_end {
            if self.recording.refresh() {
                // The frames since then are played like all others.
                self.set(self.at);
            }
            return None;
        }
        let before = self.now as u64;
        self.now += elapsed.as_secs_f64() * 1000.0 * self.playback.speed;
        let shown = self.recording.time(self.at).map_or(before, |time| time.0);
        let next = self.next()?.0;
        if next.saturating_sub(shown) > GAP_MS && self.now < next as f64 {
            self.now = next as f64;
        }
        let at = self.recording.position(Timestamp(self.now as u64))?;
        if at <= self.at {
            return None;
        }
        let from = self.at + 1;
        self.at = at;
        self.playback.at_end = at == self.last() && !self.recording.refresh();
        let (_, frame) = self.readable(from)?;
        Some(Replayed::Played(Box::new(frame)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame as Shown;
    use gpu_core::{Origin, Snapshot};
    use gpu_report::ProcessFilter;
    use gpu_steward::DeviceLeases;

    /// Frames at these times in seconds; those in `damaged` cannot be read, those in `removed` no
    /// longer have a time, and those in `later` are added one by one.
    #[derive(Default)]
    struct Made {
        times: Vec<u64>,
        damaged: Vec<usize>,
        removed: std::ops::Range<usize>,
        later: Vec<u64>,
        found: usize,
    }

    impl Recording for Made {
        fn count(&self) -> usize {
            self.times.len()
        }

        fn time(&mut self, number: usize) -> Option<Timestamp> {
            let is_there = !self.removed.contains(&number);
            let second = self.times.get(number).filter(|_| is_there);
            second.map(|second| Timestamp(second * 1000))
        }

        fn position(&mut self, time: Timestamp) -> Option<usize> {
            self.times.iter().rposition(|second| second * 1000 <= time.0)
        }

        fn frame(&mut self, number: usize) -> Option<Shown> {
            if self.damaged.contains(&number) {
                self.found += 1;
                return None;
            }
            let snapshot = Snapshot::empty(Origin::Live, self.time(number)?);
            let diagnosis = gpu_reaper::diagnose(std::slice::from_ref(&snapshot));
            let (leases, filter) = (DeviceLeases::none(), ProcessFilter::default());
            let user = |uid: u32| uid.to_string();
            Some(Shown::of(snapshot, diagnosis, &leases, |_| true, &filter, &user))
        }

        fn cpu_times(&mut self, number: usize) -> Option<CpuTimes> {
            self.frame(number).map(|frame| CpuTimes::of(&frame.snapshot))
        }

        fn devices(&mut self, number: usize) -> Option<Vec<Device>> {
            self.frame(number).map(|frame| frame.devices)
        }

        fn damaged(&self) -> usize {
            self.found
        }

        fn refresh(&mut self) -> bool {
            let more = self.later.pop();
            self.times.extend(more);
            more.is_some()
        }

        fn moment(&self, text: &str) -> Result<Timestamp, String> {
            let second: u64 = text.parse().map_err(|_| "a second is expected".to_owned())?;
            Ok(Timestamp(second * 1000))
        }
    }

    fn player(times: impl IntoIterator<Item = u64>, damaged: &[usize]) -> Player {
        let times = times.into_iter().collect();
        let made = Made { times, damaged: damaged.to_vec(), ..Made::default() };
        Player::new(Box::new(made), None, 1.0)
    }

    /// Returns the second of the frame that is shown.
    fn second(shown: Option<Replayed>) -> Option<u64> {
        match shown? {
            Replayed::Played(frame) | Replayed::Sought(frame, _) => {
                Some(frame.snapshot.taken_at.0 / 1000)
            }
            Replayed::Past(..) | Replayed::Playback(_) => None,
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn frames_are_shown_at_their_times_and_speed() {
        let mut player = player(100..200, &[]);
        assert_eq!(player.wait(), Some(SECOND));
        assert_eq!(second(player.advance(SECOND / 2)), None);
        assert_eq!(player.wait(), Some(SECOND / 2));
        assert_eq!(second(player.advance(SECOND / 2)), Some(101));
        for _ in 0..3 {
            player.obey(Control::Faster);
        }
        assert_eq!(player.playback().speed, 10.0);
        assert_eq!(second(player.advance(SECOND)), Some(111), "frames are left out");
        player.obey(Control::Slower);
        assert_eq!(player.playback().speed, 5.0);
        assert_eq!(player.wait(), Some(Duration::from_millis(200)));
        player.obey(Control::Toggle);
        assert_eq!((player.wait(), second(player.advance(SECOND))), (None, None));
    }

    #[test]
    fn jumps_go_by_time_and_steps_by_frame() {
        let mut player = player((100..200).step_by(3), &[]);
        for (control, expected) in [
            (Control::By(10), 109),
            (Control::By(-4), 106),
            (Control::Step(1), 109),
            (Control::Step(-1), 106),
            (Control::To("150".to_owned()), 148),
            (Control::First, 100),
            (Control::By(-10), 100),
            (Control::Step(-1), 100),
            (Control::Last, 199),
            (Control::Step(1), 199),
            (Control::By(1000), 199),
        ] {
            assert!(player.obey(control.clone()));
            assert_eq!(second(player.sought()), Some(expected), "{control:?}");
        }
        assert!(player.playback().at_end && second(player.advance(SECOND)).is_none());
        assert!(!player.obey(Control::To("noon".to_owned())));
        assert_eq!(player.playback().objection.as_deref(), Some("a second is expected"));
        assert_eq!(player.playback().objection, None, "it is reported once");
    }

    #[test]
    fn graphs_after_a_jump_are_those_of_the_frames_before_it() {
        let mut player = player(0..2000, &[]);
        player.obey(Control::To("1000".to_owned()));
        let Some(Replayed::Sought(frame, before)) = player.sought() else { panic!() };
        assert_eq!(frame.snapshot.taken_at, Timestamp(1_000_000));
        assert_eq!(before.unwrap().read_at, 999 * SECOND);
        let Some(Replayed::Past(of, devices)) = player.past() else { panic!() };
        assert_eq!((of, devices.len()), (Timestamp(1_000_000), PAST));
    }

    #[test]
    fn damaged_frames_are_passed_over_and_counted() {
        let mut player = player(0..10, &[4, 5]);
        player.obey(Control::To("5".to_owned()));
        assert_eq!(second(player.sought()), Some(3));
        assert_eq!(player.playback().damaged, 2);
        let Some(Replayed::Past(of, _)) = player.past() else { panic!() };
        assert_eq!(of, Timestamp(3000));
        assert_eq!(second(player.advance(SECOND)), Some(6));
    }

    #[test]
    fn long_damaged_part_is_skipped_and_reported() {
        let damaged: Vec<usize> = (300..2000).collect();
        let mut player = player(0..2000, &damaged);
        player.obey(Control::To("1500".to_owned()));
        assert_eq!(second(player.sought()), Some(0), "1500 - 64 * 2^n, then the first");
        let mut player = self::player(0..2000, &(0..1900).collect::<Vec<_>>());
        assert_eq!(second(player.sought()), Some(1999), "64 * 2^n, then the last");
        player.obey(Control::To("1892".to_owned()));
        assert_eq!(second(player.sought()), Some(1956));
        let mut player = self::player(0..100, &(0..100).collect::<Vec<_>>());
        assert_eq!(second(player.sought()), None);
        let objection = player.playback().objection;
        assert_eq!(objection.as_deref(), Some("no sample near this time can be read"));
    }

    #[test]
    fn growing_recording_is_followed_at_its_end() {
        let made = Made { times: vec![0, 1], later: vec![9, 5], ..Made::default() };
        let mut player = Player::new(Box::new(made), Some(Timestamp(1000)), 1.0);
        assert_eq!(player.wait(), Some(SEARCH));
        // The first new frame is found, and played at its time.
        assert_eq!(second(player.advance(SECOND)), None);
        assert_eq!(player.wait(), Some(4 * SECOND));
        assert_eq!(second(player.advance(4 * SECOND)), Some(5));
        assert!(!player.playback().at_end, "the next one is there already");
        assert_eq!(second(player.advance(4 * SECOND)), Some(9));
        assert!(player.playback().at_end);
        assert_eq!(second(player.advance(SECOND)), None);
        player.obey(Control::Toggle);
        assert_eq!(player.wait(), None, "paused");
    }

    #[test]
    fn playback_continues_after_a_removed_day() {
        let made = Made { times: (0..100).collect(), removed: 3..90, ..Made::default() };
        let mut player = Player::new(Box::new(made), Some(Timestamp(2000)), 1.0);
        assert!(player.wait().is_some());
        assert_eq!(second(player.advance(SECOND)), Some(90));
    }

    #[test]
    fn pauses_of_the_recorder_are_skipped() {
        let mut player = player([0, 1, 40_000, 40_001], &[]);
        assert_eq!(second(player.advance(SECOND)), Some(1));
        assert_eq!(player.wait(), Some(SECOND));
        assert_eq!(second(player.advance(SECOND)), Some(40_000));
        assert_eq!(second(player.advance(SECOND)), Some(40_001));
    }
}
