//! Draws a placement as a picture: a bar for each room, with a length proportional to its memory,
//! and a box for each used part.

use super::{Room, RoomKind, Rooms, Split};
use crate::need::{Chain, Position};
use gpu_core::{Bytes, amount, escape_markup};
use std::fmt::Write;

/// Sizes, in units of the picture.
const MARGIN: i64 = 24;
const NAMES: i64 = 120;
const BAR: i64 = 640;
const HEIGHT: i64 = 44;
const STEP: i64 = 78;
const HEADING: i64 = 30;
/// The minimum width of a box with a label.
const LABEL: i64 = 34;
/// The maximum length of a name that is drawn in full.
const MAX_NAME_CHARS: usize = 60;

/// A part of a bar: its class, label, description and bytes.
struct Segment {
    class: &'static str,
    label: String,
    title: String,
    bytes: Bytes,
}

/// Returns a placement as SVG with a title.
pub fn picture(chain: &Chain, rooms: &Rooms, split: &Split, title: &str) -> String {
    let mut svg = String::new();
    let count = rooms.rooms.len() as i64;
    let width = 2 * MARGIN + NAMES + BAR;
    let height = 2 * MARGIN + HEADING + count.max(1) * STEP;
    begin(&mut svg, title, width, height);
    let longest = scale(rooms, split);
    for (index, room) in rooms.rooms.iter().enumerate() {
        let y = MARGIN + HEADING + index as i64 * STEP;
        let used = split.used.get(index).map(|used| used.total()).unwrap_or_default();
        draw_room(&mut svg, room, used, longest, y);
        let mut start = Bytes(0);
        for part in boxes(chain, split, index) {
            draw_box(&mut svg, &part, start, longest, y);
            start += part.bytes;
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns the number of bytes that the longest bar represents. A disk without a limit is not drawn
/// to scale.
fn scale(rooms: &Rooms, split: &Split) -> Bytes {
    let used = split.used.iter().map(|used| used.total());
    let gpus = rooms.rooms.iter().filter(|room| room.kind == RoomKind::Gpu);
    let longest = used.chain(gpus.map(|room| room.capacity)).max();
    longest.unwrap_or_default().max(Bytes(1))
}

/// Returns the boxes of a room: its layers, then the remainder.
fn boxes(chain: &Chain, split: &Split, room: usize) -> Vec<Segment> {
    let mut boxes = Vec::new();
    for (index, layer) in chain.layers.iter().enumerate() {
        let moved = split.moved.iter().filter(|moved| moved.layer == index);
        let sizes = moved.map(|moved| (moved, super::plan::bytes_of(layer, &moved.kinds)));
        let sizes: Vec<_> = sizes.collect();
        let at_home = split.rooms.get(index).copied().flatten() == Some(room);
        let here = sizes.iter().filter(|(moved, _)| moved.room == room);
        let arrived: Bytes = here.map(|(_, bytes)| *bytes).sum();
        let away: Bytes = sizes.iter().map(|(_, bytes)| *bytes).sum();
        let kept = if at_home { layer.bytes().saturating_sub(away) } else { Bytes(0) };
        let bytes = kept + arrived;
        if bytes == Bytes(0) {
            continue;
        }
        let (class, label) = match layer.position {
            _ if !at_home => ("part", String::new()),
            Position::Input => ("end", "in".to_owned()),
            Position::Block(number) => ("block", number.to_string()),
            Position::Output => ("end", "out".to_owned()),
        };
        let title = format!(
            "{}: {} of weights, {} of context",
            layer.name,
            amount(layer.weights),
            amount(layer.context)
        );
        boxes.push(Segment { class, label, title, bytes });
    }
    let used = split.used.get(room).copied().unwrap_or_default();
    for (label, bytes) in [("buffer", used.buffer), ("other", used.overhead)] {
        if bytes > Bytes(0) {
            let title = format!("{label}: {}", amount(bytes));
            boxes.push(Segment { class: "rest", label: label.to_owned(), title, bytes });
        }
    }
    boxes
}

/// Returns the length of an amount, limited to the bar.
fn length(bytes: Bytes, longest: Bytes) -> i64 {
    let length = u128::from(bytes.0) * BAR as u128 / u128::from(longest.0.max(1));
    i64::try_from(length).unwrap_or(BAR).min(BAR)
}

fn draw_room(svg: &mut String, room: &Room, used: Bytes, longest: Bytes, y: i64) {
    let class = if used > room.capacity { "lack" } else { "room" };
    let (name, long) =
        (escape_markup(&room.name, MAX_NAME_CHARS), length(room.capacity, longest).max(1));
    let has = match room.kind {
        RoomKind::Disk => format!("{} used", amount(used)),
        _ => format!("{} of {} used", amount(used), amount(room.capacity)),
    };
    let x = MARGIN + NAMES;
    let _ = writeln!(
        svg,
        "<text class=\"label\" x=\"{MARGIN}\" y=\"{}\">{name}</text>\n\
         <rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{long}\" height=\"{HEIGHT}\" rx=\"4\"/>\n\
         <text class=\"name\" x=\"{x}\" y=\"{}\">{has}</text>",
        y + HEIGHT / 2 + 5,
        y + HEIGHT + 15,
    );
}

fn draw_box(svg: &mut String, part: &Segment, start: Bytes, longest: Bytes, y: i64) {
    let left = length(start, longest);
    let long = (length(start + part.bytes, longest) - left).max(0);
    let (x, class) = (MARGIN + NAMES + left, part.class);
    let _ = write!(
        svg,
        "<g><title>{}</title><rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{long}\" \
         height=\"{}\"/>",
        escape_markup(&part.title, MAX_NAME_CHARS),
        y + 4,
        HEIGHT - 8,
    );
    let fits = long >= LABEL || (long >= LABEL / 2 && part.label.len() <= 2);
    if fits {
        let (x, y) = (x + long / 2, y + HEIGHT / 2 + 4);
        let label = escape_markup(&part.label, MAX_NAME_CHARS);
        let _ = write!(svg, "<text class=\"inner\" x=\"{x}\" y=\"{y}\">{label}</text>");
    }
    svg.push_str("</g>\n");
}

fn begin(svg: &mut String, title: &str, width: i64, height: i64) {
    let title = escape_markup(title, MAX_NAME_CHARS);
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" font-family=\"sans-serif\">\n\
         <title>{title}</title>\n\
         <style>\n\
         .room {{ fill: #8080801a; stroke: #888; }}\n\
         .lack {{ fill: #8080801a; stroke: #c00; stroke-width: 2; }}\n\
         .name {{ fill: #666; font-size: 11px; }}\n\
         .label {{ fill: #111; font-size: 14px; }}\n\
         .inner {{ fill: #111; font-size: 10px; text-anchor: middle; }}\n\
         .block {{ fill: #76b900; stroke: #fff; }}\n\
         .part {{ fill: #b8dc78; stroke: #fff; }}\n\
         .end {{ fill: #4a90c2; stroke: #fff; }}\n\
         .rest {{ fill: #bbb; stroke: #fff; }}\n\
         </style>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text class=\"name\" x=\"{MARGIN}\" y=\"{MARGIN}\">{title}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::super::{Objective, measure, optimal};
    use super::*;
    use crate::model::{Architecture, Mixer, Model};
    use crate::need::{Engine, Run, chain};

    fn small() -> Chain {
        let mixer = Mixer::Attention { kv_heads: 8, key: 128, value: 128, window: None };
        let shape = Architecture {
            hidden: 1024,
            feed_forward: 4096,
            heads: 8,
            vocabulary: 32_000,
            layers: vec![mixer; 6],
            ..Architecture::default()
        };
        let model = Model { shape: Some(shape), ..Model::default() };
        chain(&model, &Run::new(Engine::LlamaCpp, 4096)).unwrap()
    }

    fn rooms(first: &str, mib: u64) -> Rooms {
        let gpu = |name: &str| Room::gpu(name, Bytes::from_mib(mib));
        Rooms::new(vec![gpu(first), gpu("second"), Room::cpu(Bytes(1 << 40))])
    }

    #[test]
    fn every_layer_is_one_box() {
        let (chain, rooms) = (small(), rooms("first", 900));
        let split = optimal(&chain, &rooms, Objective::Throughput);
        let svg = picture(&chain, &rooms, &split, "six blocks");
        assert_eq!(svg.matches("class=\"block\"").count(), 6, "{svg}");
        assert_eq!(svg.matches("class=\"end\"").count(), 2, "{svg}");
        assert_eq!(svg.matches("class=\"lack\"").count(), 0, "{svg}");
    }

    #[test]
    fn boxes_stay_within_picture() {
        let (chain, rooms) = (small(), rooms("first", 1));
        let assigned = vec![Some(0); chain.layers.len()];
        let split = measure(&chain, &rooms, assigned, Vec::new());
        let svg = picture(&chain, &rooms, &split, "too much");
        assert_eq!(svg.matches("class=\"lack\"").count(), 1, "{svg}");
        let number = |text: &str| text.split('"').next().and_then(|text| text.parse().ok());
        let all = |name: &str| -> Vec<i64> {
            svg.split(&format!(" {name}=\"")).skip(1).filter_map(number).collect()
        };
        let (width, height) = (all("width")[0], all("height")[0]);
        assert!(all("x").iter().all(|x| (0..width).contains(x)), "{svg}");
        assert!(all("y").iter().all(|y| (0..height).contains(y)), "{svg}");
    }

    #[test]
    fn names_are_escaped() {
        let name = "</text><script>\u{1b}&\"".to_owned() + &"x".repeat(200);
        let (chain, rooms) = (small(), rooms(&name, 900));
        let split = optimal(&chain, &rooms, Objective::Latency);
        let svg = picture(&chain, &rooms, &split, &name);
        assert!(!svg.contains("<script") && !svg.contains('\u{1b}'), "{svg}");
        assert!(!svg.contains(&"x".repeat(MAX_NAME_CHARS)), "{svg}");
    }

    #[test]
    fn lengths_are_in_proportion_and_within_the_bar() {
        for (bytes, longest, expected) in [
            (0, 10, 0),
            (5, 10, BAR / 2),
            (10, 10, BAR),
            (20, 10, BAR),
            (u64::MAX, 1, BAR),
            (1, 0, BAR),
        ] {
            assert_eq!(length(Bytes(bytes), Bytes(longest)), expected, "{bytes} of {longest}");
        }
    }
}
