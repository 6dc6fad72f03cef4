//! Draws the topology as a picture.
//!
//! Devices that share a part of the PCI tree are in one box; boxes nest. Each NUMA node has a row.
//! NVLinks are lines, and more links make a thicker line. If every pair has the same number of
//! links, as over NVSwitch, one bar stands for all of them.

use gpu_core::{Link, Topology, escape_markup};
use std::fmt::Write;

/// Sizes, in units of the picture.
const MARGIN: i64 = 24;
const DEVICE: (i64, i64) = (92, 46);
const GAP: i64 = 44;
/// Padding of a box around its content.
const PAD: i64 = 11;
/// Height of the label of a box.
const NAME: i64 = 14;
/// Distance between two rows.
const BETWEEN: i64 = 96;
const BAR: i64 = 26;
/// Height of the title.
const HEADING: i64 = 24;
const MIN_WIDTH: i64 = 420;
/// How many unrelated devices are in a row.
const MAX_ROW: usize = 8;

/// The parts of the PCI tree, the widest first, each with the label of its box.
const PARTS: [(Link, &str); 4] = [
    (Link::Node, "NUMA node"),
    (Link::Phb, "host bridge"),
    (Link::Pxb, "PCIe bridges"),
    (Link::Pix, "PCIe bridge"),
];

/// Returns a topology as SVG, with a title, and a name for each device and its nearest NUMA node by
/// index, if known.
pub fn picture(
    topology: &Topology,
    title: &str,
    names: &[Option<String>],
    nodes: &[Option<u32>],
) -> String {
    let tree = Tree { topology };
    let rows = tree.rows();
    let mut corners = vec![(0, 0); topology.links.len()];
    let depth = 1 + rows.iter().map(|row| tree.depth(row, 0)).max().unwrap_or(0);
    let step = DEVICE.1 + BETWEEN + 2 * depth * (PAD + NAME) - NAME;
    let shared = tree.shared();
    let bent = shared.map_or_else(|| arc_room(&rows), |_| 0);
    let top = MARGIN + HEADING + depth * (PAD + NAME) + bent;
    for (line, row) in rows.iter().enumerate() {
        for (column, device) in row.iter().enumerate() {
            let x = MARGIN + depth * PAD + column as i64 * (DEVICE.0 + GAP);
            corners[*device] = (x, top + line as i64 * step);
        }
    }
    let longest = rows.iter().map(Vec::len).max().unwrap_or(0) as i64;
    let width = 2 * (MARGIN + depth * PAD) + longest * (DEVICE.0 + GAP) - GAP;
    let last = top + (rows.len() as i64 - 1).max(0) * step;
    let bottom = last + DEVICE.1 + depth * PAD + MARGIN;
    let height = bottom + shared.map_or(0, |_| BAR + 2 * GAP);
    let mut picture = Picture { svg: String::new(), corners, nodes };
    picture.begin(title, width.max(MIN_WIDTH), height);
    for row in &rows {
        picture.boxes(&tree, row, 0);
    }
    match shared {
        Some(lanes) => picture.bar(lanes, width, bottom),
        None => picture.lines(&tree),
    }
    for device in 0..topology.links.len() {
        picture.device(device, names.get(device).and_then(Option::as_deref));
    }
    picture.svg.push_str("</svg>\n");
    picture.svg
}

/// What the links reveal about the PCI tree.
struct Tree<'a> {
    topology: &'a Topology,
}

impl Tree<'_> {
    fn link(&self, from: usize, to: usize) -> Link {
        cell(&self.topology.links, from, to).unwrap_or(Link::Unknown)
    }

    /// Returns the location of two devices in the PCI tree, beneath their NVLinks; `None` if
    /// unknown.
    fn path(&self, from: usize, to: usize) -> Option<Link> {
        let path = cell(&self.topology.paths, from, to).unwrap_or_else(|| self.link(from, to));
        (!matches!(path, Link::NvLink(_) | Link::Xgmi | Link::Unknown)).then_some(path)
    }

    fn lanes(&self, from: usize, to: usize) -> Option<u8> {
        match self.link(from, to) {
            Link::NvLink(lanes) => Some(lanes),
            Link::Xgmi => Some(1),
            _ => None,
        }
    }

    /// Returns the number of NVLinks that every pair has; `None` if they differ, or are few enough
    /// to draw as lines.
    fn shared(&self) -> Option<u8> {
        let count = self.topology.links.len();
        let pairs = (0..count).flat_map(|to| (0..to).map(move |from| (from, to)));
        let mut lanes = pairs.map(|(from, to)| self.lanes(from, to));
        let first = lanes.next()??;
        (count > 4 && lanes.all(|lanes| lanes == Some(first))).then_some(first)
    }

    /// Returns the devices by row, with those of one part next to each other.
    fn rows(&self) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..self.topology.links.len()).collect();
        let mut rows = self.split(&all, |path| path != Some(Link::Sys));
        if rows.iter().all(|row| row.len() == 1) {
            return all.chunks(MAX_ROW).map(<[usize]>::to_vec).collect();
        }
        for row in &mut rows {
            *row = self.in_order(row, 0);
        }
        rows
    }

    fn in_order(&self, devices: &[usize], part: usize) -> Vec<usize> {
        if part == PARTS.len() || devices.len() < 2 {
            return devices.to_vec();
        }
        let parts = self.parts(devices, part);
        parts.iter().flat_map(|devices| self.in_order(devices, part + 1)).collect()
    }

    /// Groups devices by the part of the tree that they share.
    fn parts(&self, devices: &[usize], part: usize) -> Vec<Vec<usize>> {
        let (least, _) = PARTS[part];
        self.split(devices, |path| path.is_some_and(|path| nearness(path) >= nearness(least)))
    }

    /// Splits devices into connected groups, by the path of each pair.
    fn split(&self, devices: &[usize], connects: impl Fn(Option<Link>) -> bool) -> Vec<Vec<usize>> {
        let mut left = devices.to_vec();
        let mut parts = Vec::new();
        while !left.is_empty() {
            let mut part = vec![left.remove(0)];
            let mut next = 0;
            while let Some(&from) = part.get(next) {
                let near = |to: &usize| connects(self.path(from.min(*to), from.max(*to)));
                part.extend(left.extract_if(.., |to| near(to)));
                next += 1;
            }
            part.sort_unstable();
            parts.push(part);
        }
        parts
    }

    /// Returns whether a part gets a box: it certainly contains several devices, and not the same
    /// ones as the next narrower part.
    fn has_box(&self, devices: &[usize], part: usize) -> bool {
        let narrower = part + 1 < PARTS.len() && self.parts(devices, part + 1).len() == 1;
        devices.len() > 1 && !narrower && self.parts(devices, part).len() == 1
    }

    /// Returns the depth of nested boxes around devices.
    fn depth(&self, devices: &[usize], part: usize) -> i64 {
        if part == PARTS.len() {
            return 0;
        }
        let inner = self.parts(devices, part);
        let inner = inner.iter().map(|devices| self.depth(devices, part + 1)).max().unwrap_or(0);
        inner + i64::from(self.has_box(devices, part))
    }
}

fn cell(table: &[Vec<Link>], from: usize, to: usize) -> Option<Link> {
    table.get(from)?.get(to).copied()
}

/// Returns a rank for the distance in the PCI tree.
fn nearness(path: Link) -> u8 {
    match path {
        Link::Itself => 6,
        Link::Pix => 5,
        Link::Pxb => 4,
        Link::Phb => 3,
        Link::Node => 2,
        Link::Sys => 1,
        Link::NvLink(_) | Link::Xgmi | Link::Unknown => 0,
    }
}

/// Returns the height that lines take above the first row.
fn arc_room(rows: &[Vec<usize>]) -> i64 {
    let longest = rows.iter().map(Vec::len).max().unwrap_or(0) as i64;
    arc(longest - 1) / 2
}

/// Returns the bend of a line between devices at this distance.
fn arc(distance: i64) -> i64 {
    if distance < 2 { 0 } else { 34 + 16 * distance }
}

struct Picture<'a> {
    svg: String,
    /// The upper left corner of each device.
    corners: Vec<(i64, i64)>,
    nodes: &'a [Option<u32>],
}

impl Picture<'_> {
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.svg, "{element}");
    }

    fn begin(&mut self, title: &str, width: i64, height: i64) {
        let title = escape_markup(title, MAX_NAME_CHARS);
        self.add(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" font-family=\"sans-serif\">\n\
             <title>{title}</title>\n\
             <style>\n\
             .box {{ fill: #8080801a; stroke: #888; }}\n\
             .name {{ fill: #666; font-size: 11px; }}\n\
             .gpu {{ fill: #fff; stroke: #333; stroke-width: 1.5; }}\n\
             .label {{ fill: #111; font-size: 14px; text-anchor: middle; }}\n\
             .link {{ fill: none; stroke: #76b900; stroke-linecap: round; }}\n\
             .lanes {{ fill: #111; font-size: 11px; text-anchor: middle; paint-order: stroke; \
             stroke: #fff; stroke-width: 3; }}\n\
             </style>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
             <text class=\"name\" x=\"{MARGIN}\" y=\"{MARGIN}\">{title}</text>"
        ));
    }

    fn boxes(&mut self, tree: &Tree<'_>, devices: &[usize], part: usize) {
        if part == PARTS.len() {
            return;
        }
        if tree.has_box(devices, part) {
            let around = tree.depth(devices, part);
            let (left, top) =
                devices.iter().map(|device| self.corners[*device]).min().unwrap_or((0, 0));
            let right = devices.iter().map(|device| self.corners[*device].0).max().unwrap_or(0);
            let (x, y) = (left - around * PAD, top - around * (PAD + NAME));
            let width = right + DEVICE.0 + around * PAD - x;
            let height = DEVICE.1 + around * (2 * PAD + NAME);
            let name = self.part_name(devices, part);
            self.add(format_args!(
                "<rect class=\"box\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
                 rx=\"8\"/>\n<text class=\"name\" x=\"{}\" y=\"{}\">{name}</text>",
                x + 6,
                y + NAME - 1,
            ));
        }
        for inner in tree.parts(devices, part) {
            self.boxes(tree, &inner, part + 1);
        }
    }

    /// Returns the label of a box: a NUMA node with its number if all its devices report the same.
    fn part_name(&self, devices: &[usize], part: usize) -> String {
        let (link, name) = PARTS[part];
        let node = |device: &usize| self.nodes.get(*device).copied().flatten();
        let first = devices.first().and_then(node);
        match first.filter(|_| devices.iter().all(|device| node(device) == first)) {
            Some(number) if link == Link::Node => format!("{name} {number}"),
            _ => format!("{name} ({link})"),
        }
    }

    fn lines(&mut self, tree: &Tree<'_>) {
        let count = self.corners.len();
        for from in 0..count {
            for to in from + 1..count {
                if let Some(lanes) = tree.lanes(from, to) {
                    self.line(from, to, lanes);
                }
            }
        }
    }

    fn line(&mut self, from: usize, to: usize, lanes: u8) {
        let middle = |device: usize| {
            let (x, y) = self.corners[device];
            (x + DEVICE.0 / 2, y + DEVICE.1 / 2)
        };
        let ((x1, y1), (x2, y2)) = (middle(from), middle(to));
        let apart = (x2 - x1).abs() / (DEVICE.0 + GAP);
        // Within a row, lines to neighbours are straight, and other lines bend over the devices in
        // between; a curve reaches half the distance to its control point.
        let bend = if y1 == y2 { arc(apart) } else { 0 };
        let (cx, cy) = ((x1 + x2) / 2, (y1 + y2) / 2 - bend);
        let width = 1.0 + 1.5 * f64::from(lanes.min(18)).sqrt();
        // Place the labels of crossing lines at different positions along them.
        let part = if y1 == y2 { 0.5 } else { [0.34, 0.5, 0.66][(from + to) % 3] };
        let at = |a: i64, c: i64, b: i64| {
            let (a, c, b) = (a as f64, c as f64, b as f64);
            (1.0 - part) * (1.0 - part) * a + 2.0 * part * (1.0 - part) * c + part * part * b
        };
        let link = Link::NvLink(lanes);
        self.add(format_args!(
            "<path class=\"link\" stroke-width=\"{width:.1}\" \
             d=\"M {x1} {y1} Q {cx} {cy} {x2} {y2}\"><title>GPU {from} – GPU {to}: {link}</title>\
             </path>\n<text class=\"lanes\" x=\"{:.0}\" y=\"{:.0}\">{link}</text>",
            at(x1, cx, x2),
            at(y1, cy, y2) + 4.0,
        ));
    }

    /// Draws one bar for the links that every pair has.
    fn bar(&mut self, lanes: u8, width: i64, bottom: i64) {
        let link = Link::NvLink(lanes);
        let y = bottom + GAP / 2;
        for device in 0..self.corners.len() {
            let (x, top) = self.corners[device];
            let x = x + DEVICE.0 / 2;
            let top = top + DEVICE.1;
            self.add(format_args!(
                "<path class=\"link\" stroke-width=\"5\" d=\"M {x} {top} V {y}\"/>"
            ));
        }
        self.add(format_args!(
            "<rect x=\"{MARGIN}\" y=\"{y}\" width=\"{}\" height=\"{BAR}\" rx=\"6\" fill=\"#76b900\">\
             <title>Every pair: {link}</title></rect>\n\
             <text class=\"label\" x=\"{}\" y=\"{}\">{link} between every pair</text>",
            width - 2 * MARGIN,
            width / 2,
            y + BAR / 2 + 5,
        ));
    }

    fn device(&mut self, device: usize, name: Option<&str>) {
        let (x, y) = self.corners[device];
        let title =
            name.map_or(String::new(), |name| format!(": {}", escape_markup(name, MAX_NAME_CHARS)));
        self.add(format_args!(
            "<g><title>GPU {device}{title}</title>\
             <rect class=\"gpu\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"6\"/>\
             <text class=\"label\" x=\"{}\" y=\"{}\">GPU {device}</text></g>",
            DEVICE.0,
            DEVICE.1,
            x + DEVICE.0 / 2,
            y + DEVICE.1 / 2 + 5,
        ));
    }
}

/// The maximum length of a name that is drawn in full.
const MAX_NAME_CHARS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(count: usize, link: impl Fn(usize, usize) -> Link, paths: bool) -> Topology {
        let square = |flat: bool| {
            let cell = |from: usize, to: usize| match (from == to, link(from.min(to), from.max(to)))
            {
                (true, _) => Link::Itself,
                (_, Link::NvLink(_)) if flat => Link::Sys,
                (_, link) => link,
            };
            (0..count).map(|from| (0..count).map(|to| cell(from, to)).collect()).collect()
        };
        let paths = if paths { square(true) } else { Vec::new() };
        Topology { links: square(false), paths, peers: Vec::new() }
    }

    fn pairs(from: usize, to: usize) -> Link {
        match (from / 2 == to / 2, from + to == 3) {
            (true, _) => Link::Pix,
            (_, true) => Link::NvLink(2),
            _ => Link::Sys,
        }
    }

    /// Counts the elements of a class.
    fn count(svg: &str, class: &str) -> usize {
        svg.matches(&format!("class=\"{class}\"")).count()
    }

    #[test]
    fn each_device_link_and_node_is_drawn_once() {
        let nodes = [Some(0), Some(0), Some(1), Some(1)];
        for paths in [true, false] {
            let svg = picture(&topology(4, pairs, paths), "four", &[], &nodes);
            assert_eq!((count(&svg, "gpu"), count(&svg, "link"), count(&svg, "box")), (4, 2, 2));
            assert!(svg.contains("GPU 0 – GPU 3: NV2"), "{svg}");
            assert!(svg.contains("PCIe bridge (PIX)"), "{svg}");
        }
        let node = |_, _| Link::Node;
        let svg = picture(&topology(2, node, false), "two", &[], &nodes);
        assert!(svg.contains("NUMA node 0"), "{svg}");
        let svg = picture(&topology(2, node, false), "two", &[], &nodes[1..]);
        assert!(svg.contains("NUMA node (NODE)"), "{svg}");
    }

    #[test]
    fn uniform_links_are_drawn_as_one_bar() {
        let svg = picture(&topology(8, |_, _| Link::NvLink(18), true), "eight", &[], &[]);
        assert_eq!((count(&svg, "gpu"), count(&svg, "link"), count(&svg, "box")), (8, 8, 0));
        assert!(svg.contains("NV18 between every pair"), "{svg}");
    }

    #[test]
    fn drawing_stays_within_bounds() {
        for count in [0, 1, 2, 5, 12, 16] {
            let link = |from: usize, to: usize| match (from / 4 == to / 4, from % 3) {
                (true, 0) => Link::NvLink(4),
                (true, _) => Link::Phb,
                _ => Link::Sys,
            };
            let svg = picture(&topology(count, link, true), "many", &[], &[]);
            let number = |text: &str| text.split('"').next().and_then(|text| text.parse().ok());
            let all = |name: &str| -> Vec<i64> {
                svg.split(&format!(" {name}=\"")).skip(1).filter_map(number).collect()
            };
            let (width, height) = (all("width")[0], all("height")[0]);
            assert!(all("x").iter().all(|x| (0..width).contains(x)), "{svg}");
            assert!(all("y").iter().all(|y| (0..height).contains(y)), "{svg}");
        }
    }

    #[test]
    fn names_are_escaped() {
        let name = "</title><script>\u{1b}&\"".to_owned() + &"x".repeat(200);
        let svg = picture(&topology(1, pairs, false), &name, &[Some(name.clone())], &[]);
        assert!(!svg.contains("<script") && !svg.contains('\u{1b}'), "{svg}");
        assert!(svg.contains("&lt;/title&gt;&lt;script&gt;\\u{1b}&amp;&quot;x"), "{svg}");
        assert!(!svg.contains(&"x".repeat(MAX_NAME_CHARS)), "{svg}");
    }
}
