//! The layout of the screen.

use crate::state::State;
use ratatui_core::layout::Rect;

/// The parts of the screen, from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Areas {
    pub(crate) header: Rect,
    pub(crate) devices: Rect,
    /// How the devices are arranged.
    pub(crate) grid: Grid,
    /// The titles of the table.
    pub(crate) titles: Rect,
    pub(crate) rows: Rect,
    pub(crate) footer: Rect,
}

/// The arrangement of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// The number of devices side by side.
    pub(crate) columns: u16,
    /// The number of lines of each device: 1 without graphs.
    pub(crate) lines: u16,
    /// The level of detail for each device.
    pub(crate) level: Level,
}

/// The level of detail of a device on its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Name, temperature, power, utilization, memory and use.
    Full,
    /// Utilization, memory and use.
    Medium,
    /// Utilization and a bar of the memory.
    Compact,
}

impl Level {
    const ALL: [Level; 3] = [Level::Full, Level::Medium, Level::Compact];

    /// Returns the minimum width in columns.
    const fn width(self) -> u16 {
        match self {
            Level::Full => 72,
            Level::Medium => 38,
            Level::Compact => 19,
        }
    }
}

/// The most devices that have graphs.
const WITH_GRAPHS: usize = 4;
/// The most lines of a graph.
const GRAPH: u16 = 8;

impl Areas {
    pub(crate) fn of(state: &State, area: Rect) -> Self {
        let devices = state.frame.as_deref().map_or(&[][..], |frame| &frame.devices[..]);
        let (count, has_parts) = (devices.len(), devices.iter().any(|device| device.mig.is_some()));
        let header = area.height.min(1);
        let footer = u16::from(area.height >= 4);
        let body = area.height - header - footer;
        // The table keeps its titles and most of a small screen.
        let most = match body {
            0..=2 => body.min(1),
            _ => (body * 11 / 20).max(1),
        };
        let grid = Grid::of(count, has_parts, area.width, most);
        let needed = u32::try_from(count.div_ceil(usize::from(grid.columns))).unwrap_or(u32::MAX);
        let needed = needed.saturating_mul(grid.lines.into()).max(1);
        let devices = u16::try_from(needed).unwrap_or(u16::MAX).min(most);
        let titles = u16::from(body > devices + 1);
        let mut y = area.y;
        let mut part = |height: u16| {
            let part = Rect::new(area.x, y, area.width, height);
            y += height;
            part
        };
        Areas {
            header: part(header),
            devices: part(devices),
            grid,
            titles: part(titles),
            rows: part(body - devices - titles),
            footer: part(footer),
        }
    }

    /// Returns the area that an overlay covers.
    pub(crate) fn body(&self) -> Rect {
        let top = self.devices.y;
        let height = self.rows.bottom().saturating_sub(top);
        Rect::new(self.devices.x, top, self.devices.width, height)
    }
}

impl Grid {
    fn of(count: usize, has_parts: bool, width: u16, most: u16) -> Self {
        let best = Level::ALL.into_iter().find(|level| width >= level.width());
        let best = best.unwrap_or(Level::Compact);
        let devices = u16::try_from(count).unwrap_or(u16::MAX).max(1);
        // For a MIG device, only the memory is known.
        if !has_parts && count <= WITH_GRAPHS && most / devices >= 2 {
            let lines = (most / devices).min(GRAPH + 1);
            return Grid { columns: 1, lines, level: best };
        }
        let columns = |level: Level| (width / level.width()).max(1);
        let fits = |level: &Level| {
            width >= level.width() && u32::from(columns(*level)) * u32::from(most) >= devices.into()
        };
        let level = Level::ALL.into_iter().find(fits).unwrap_or(Level::Compact);
        // No more devices side by side than the lines require, so that each column is as wide as
        // possible.
        let needed = devices.div_ceil(most.max(1));
        Grid { columns: columns(level).min(needed).max(1), lines: 1, level }
    }
}
