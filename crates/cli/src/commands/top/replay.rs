//! The frames of a history for the view.

use super::TopArgs;
use crate::failure::Failure;
use crate::local_time;
use crate::selector::chosen;
use crate::users::user;
use gpu_core::{DeviceId, Timestamp};
use gpu_history::Reader;
use gpu_machine::history;
use gpu_report::replay::Watched;
use gpu_report::{Moment, ProcessFilter, TimeZone};
use gpu_steward::DeviceLeases;
use gpu_top::rows::{Device, measured};
use gpu_top::{CpuTimes, Frame, Recording};
use std::path::Path;

/// How many of the last frames are searched for the devices that an option selects.
const SEARCHED: usize = 100;

/// A history, as the view plays it.
pub(super) struct Played {
    reader: Reader,
    watched: Watched,
    zone: TimeZone,
    filter: ProcessFilter,
    /// The indexes of the devices that are shown; all if empty.
    devices: Vec<u32>,
}

/// Opens a history. Returns it with the time to show first.
pub(super) fn open(
    path: &Path,
    args: &TopArgs,
    filter: ProcessFilter,
) -> Result<(Played, Option<Timestamp>), Failure> {
    let mut reader = history::reader(path)?;
    let zone = local_time::zone();
    let position = gpu_report::replay::position(path, &mut reader, args.replay.at, &zone)?;
    let at = reader.time(position);
    let asked = &args.only.devices;
    let known = (0..reader.len()).rev().take(SEARCHED).find_map(|number| reader.frame(number));
    let devices = match (asked.is_empty(), known) {
        (false, Some(frame)) => chosen(&frame.snapshot, asked)?,
        _ => Vec::new(),
    };
    Ok((Played { reader, watched: Watched::default(), zone, filter, devices }, at))
}

impl Played {
    fn shows(&self) -> impl Fn(&DeviceId) -> bool {
        let devices = self.devices.clone();
        move |id| devices.is_empty() || devices.contains(&id.index)
    }
}

impl Recording for Played {
    fn count(&self) -> usize {
        self.reader.len()
    }

    fn time(&mut self, number: usize) -> Option<Timestamp> {
        self.reader.time(number)
    }

    fn position(&mut self, time: Timestamp) -> Option<usize> {
        self.reader.position(time)
    }

    fn frame(&mut self, number: usize) -> Option<Frame> {
        let gpu_history::Frame { snapshot, leases } = self.reader.frame(number)?;
        let leased = DeviceLeases::recorded(leases);
        let mut diagnosis = self.watched.diagnose(&mut self.reader, number, &snapshot);
        leased.excuse(&snapshot, &mut diagnosis);
        Some(Frame::of(snapshot, diagnosis, &leased, self.shows(), &self.filter, &user))
    }

    fn cpu_times(&mut self, number: usize) -> Option<CpuTimes> {
        Some(CpuTimes::of(&self.reader.frame(number)?.snapshot))
    }

    fn devices(&mut self, number: usize) -> Option<Vec<Device>> {
        let frame = self.reader.frame(number)?;
        Some(measured(&frame.snapshot, self.shows()))
    }

    fn damaged(&self) -> usize {
        self.reader.damage().iter().map(|damage| damage.frames).sum()
    }

    fn refresh(&mut self) -> bool {
        self.reader.refresh().unwrap_or(false)
    }

    fn moment(&self, text: &str) -> Result<Timestamp, String> {
        let moment: Moment = text.parse().map_err(str::to_owned)?;
        let span = self.reader.span().unwrap_or((Timestamp(0), Timestamp(0)));
        gpu_report::replay::covered(moment, span, &self.zone)
    }
}
