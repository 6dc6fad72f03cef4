//! The layout of the screen.

use crate::state::State;
use ratatui_core::layout::Rect;

/// The parts of the screen, from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Areas {
    pub(crate) header: Rect,
    /// The load of the host.
    pub(crate) host: Rect,
    pub(crate) devices: Rect,
    /// The time axis of the graphs.
    pub(crate) axis: Rect,
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
    /// The number of lines of each device.
    pub(crate) lines: u16,
    /// The number of these that are graphs.
    pub(crate) graphs: u16,
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
/// The lowest screen with a line for the host.
const HOST: u16 = 12;
/// The lines that the axis of the graphs leaves for the table.
const TABLE: u16 = 6;
/// The screen width, in columns, from which a line has a graph of the utilization, and the narrowest
/// graph.
pub(crate) const INLINE: (u16, u16) = (116, 30);

impl Areas {
    pub(crate) fn of(state: &State, area: Rect) -> Self {
        let devices = state.frame.as_deref().map_or(&[][..], |frame| &frame.devices[..]);
        let (count, has_parts) = (devices.len(), devices.iter().any(|device| device.mig.is_some()));
        let header = area.height.min(1);
        let footer = u16::from(area.height >= 4);
        let host = u16::from(state.more && area.height >= HOST);
        let body = area.height - header - host - footer;
        // The table keeps its titles and most of a small screen.
        let most = match body {
            0..=2 => body.min(1),
            _ => (body * 11 / 20).max(1),
        };
        let grid = Grid::of((count, has_parts), area.width, most, state.more);
        let needed = u32::try_from(count.div_ceil(usize::from(grid.columns))).unwrap_or(u32::MAX);
        let needed = needed.saturating_mul(grid.lines.into()).max(1);
        let devices = u16::try_from(needed).unwrap_or(u16::MAX).min(most / grid.lines * grid.lines);
        let axis = u16::from(grid.has_graphs(area.width) && body > devices + TABLE);
        let titles = u16::from(body > devices + axis + 1);
        let mut y = area.y;
        let mut part = |height: u16| {
            let part = Rect::new(area.x, y, area.width, height);
            y += height;
            part
        };
        Areas {
            header: part(header),
            host: part(host),
            devices: part(devices),
            axis: part(axis),
            grid,
            titles: part(titles),
            rows: part(body - devices - axis - titles),
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
    /// Arranges this many devices, some of them perhaps MIG devices, with their second line if
    /// `more`. If not all devices fit with it, fewer are shown.
    fn of((count, has_parts): (usize, bool), width: u16, most: u16, more: bool) -> Self {
        let best = Level::ALL.into_iter().find(|level| width >= level.width());
        let best = best.unwrap_or(Level::Compact);
        let devices = u16::try_from(count).unwrap_or(u16::MAX).max(1);
        let more = more && best != Level::Compact && most > 1;
        let own = 1 + u16::from(more);
        // For a MIG device, only the memory is known.
        if !has_parts && count <= WITH_GRAPHS && most / devices > own {
            let lines = (most / devices).min(GRAPH + own);
            return Grid { columns: 1, lines, graphs: lines - own, level: best };
        }
        let columns = |level: Level| (width / level.width()).max(1);
        let fits = |level: &Level| {
            let all = u32::from(columns(*level)) * u32::from(most / own);
            width >= level.width() && all >= devices.into() && !(more && *level == Level::Compact)
        };
        let level = Level::ALL.into_iter().find(fits);
        let level = level.unwrap_or(if more { best } else { Level::Compact });
        // No more devices side by side than the lines require, so that each column is as wide as
        // possible.
        let needed = devices.div_ceil((most / own).max(1));
        Grid { columns: columns(level).min(needed).max(1), lines: own, graphs: 0, level }
    }

    /// Returns the width of a column of devices on a screen of this width.
    pub(crate) fn column(&self, width: u16) -> u16 {
        width / self.columns.max(1)
    }

    /// Returns whether devices have graphs below their line or in it.
    fn has_graphs(&self, width: u16) -> bool {
        self.graphs > 0 || self.has_inline(width)
    }

    /// Returns whether the line of each device has a graph.
    pub(crate) fn has_inline(&self, width: u16) -> bool {
        let gap = u16::from(self.columns > 1);
        self.graphs == 0 && self.column(width).saturating_sub(gap) >= INLINE.0 + INLINE.1
    }
}
