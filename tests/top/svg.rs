//! Draws a buffer as a picture: text as text, and bars and graphs as shapes, so that they need no
//! font.

use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::style::{Color, Modifier};
use std::collections::BTreeMap;
use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

/// The size of a cell, in pixels. The height is a multiple of the eighth blocks and of the Braille
/// dots.
const CELL: (u32, u32) = (8, 16);
const FONT: u32 = 13;
const MARGIN: u32 = 8;

/// Colours on a light background, and on a dark one.
const THEMES: [(&str, [&str; 6]); 2] = [
    ("light", ["#ffffff", "#1f2328", "#8a5a00", "#0f7b85", "#1a7f37", "#c01c28"]),
    ("dark", ["#0d1117", "#e6edf3", "#d9a521", "#3cc2cf", "#3fb950", "#ff7b72"]),
];

/// Draws a buffer. The picture follows the reader's theme.
pub(crate) fn svg(buffer: &Buffer, title: &str) -> String {
    let area = *buffer.area();
    let size = |cells: u16, pixels| u32::from(cells) * pixels + 2 * MARGIN;
    let (width, height) = (size(area.width, CELL.0), size(area.height, CELL.1));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"{FONT}\" xml:space=\"preserve\">\n<title>{}</title>\n<style>\n",
        escaped(title)
    );
    for (theme, [back, plain, accent, graph, good, bad]) in THEMES {
        let rules = format!(
            ".back{{fill:{back}}}.plain{{fill:{plain}}}.accent{{fill:{accent}}}\
             .graph{{fill:{graph}}}.good{{fill:{good}}}.bad{{fill:{bad}}}"
        );
        // Writing to a string cannot fail.
        let _ = match theme {
            "light" => writeln!(out, "{rules}.b{{font-weight:bold}}.d{{opacity:.6}}"),
            _ => writeln!(out, "@media(prefers-color-scheme:dark){{{rules}}}"),
        };
    }
    let _ = writeln!(
        out,
        "</style>\n<rect class=\"back\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>"
    );
    let mut shapes: BTreeMap<String, String> = BTreeMap::new();
    let mut texts = String::new();
    for y in area.top()..area.bottom() {
        let mut x = area.left();
        while x < area.right() {
            let (from, class) = (x, class(&buffer[(x, y)]));
            let mut text = String::new();
            while x < area.right() && self::class(&buffer[(x, y)]) == class {
                let symbol = buffer[(x, y)].symbol();
                let wide = u16::try_from(symbol.width()).unwrap_or(1).max(1);
                if is_reversed(&buffer[(x, y)]) {
                    shape(shapes.entry("plain".to_owned()).or_default(), (x, y), (0, 0, 8, 16));
                }
                match drawn(symbol) {
                    Some(parts) => {
                        if !text.trim().is_empty() {
                            break;
                        }
                        let path = shapes.entry(class.clone()).or_default();
                        parts.into_iter().for_each(|part| shape(path, (x, y), part));
                        text.push(' ');
                    }
                    None => text.push_str(symbol),
                }
                x += wide;
            }
            if !text.trim().is_empty() {
                let skipped = text.len() - text.trim_start().len();
                let text = text.trim();
                let (x, y) = (MARGIN + (u32::from(from) + skipped as u32) * CELL.0, line(y) + 12);
                let long = text.width() as u32 * CELL.0;
                let text = escaped(text);
                let _ = writeln!(
                    texts,
                    "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" textLength=\"{long}\">{text}</text>"
                );
            }
        }
    }
    for (class, path) in shapes {
        let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\"/>");
    }
    out + &texts + "</svg>\n"
}

fn line(y: u16) -> u32 {
    MARGIN + u32::from(y) * CELL.1
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn is_reversed(cell: &Cell) -> bool {
    cell.modifier.contains(Modifier::REVERSED)
}

fn class(cell: &Cell) -> String {
    let colour = match (is_reversed(cell), cell.fg) {
        (true, _) => "back",
        (_, Color::Reset) => "plain",
        (_, Color::Yellow | Color::LightYellow) => "accent",
        (_, Color::Cyan | Color::Blue | Color::Magenta) => "graph",
        (_, Color::Green) => "good",
        (_, Color::Red) => "bad",
        (_, other) => panic!("a colour that the pictures do not have: {other}"),
    };
    let bold = if cell.modifier.contains(Modifier::BOLD) { " b" } else { "" };
    let dim = if cell.modifier.contains(Modifier::DIM) { " d" } else { "" };
    format!("{colour}{bold}{dim}")
}

/// A rectangle within a cell: left, top, width, height.
type Rect = (u32, u32, u32, u32);

fn shape(path: &mut String, (x, y): (u16, u16), (left, top, width, height): Rect) {
    let (x, y) = (MARGIN + u32::from(x) * CELL.0 + left, line(y) + top);
    let _ = write!(path, "M{x} {y}h{width}v{height}h-{width}z");
}

/// Returns the shapes of a symbol of a bar, a graph or a frame; `None` for text.
fn drawn(symbol: &str) -> Option<Vec<Rect>> {
    let letter = symbol.chars().next()?;
    let code = u32::from(letter);
    Some(match letter {
        '█' => vec![(0, 2, 8, 12)],
        // Left blocks, from seven eighths to one.
        '▉'..='▏' => vec![(0, 2, 0x2590 - code, 12)],
        // Lower blocks, from one eighth to seven.
        '▁'..='▇' => vec![(0, 16 - 2 * (code - 0x2580), 8, 2 * (code - 0x2580))],
        '░' => vec![(0, 13, 8, 1)],
        // The bits of dots 1 to 8: two columns of three, then the lowest two.
        '\u{2800}'..='\u{28ff}' => {
            let dots = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)];
            let is_set = |bit: &usize| (code - 0x2800) >> bit & 1 == 1;
            let dot = |bit: usize| (1 + dots[bit].0 * 4, 1 + dots[bit].1 * 4, 2, 2);
            (0..8).filter(is_set).map(dot).collect()
        }
        '─' => vec![(0, 8, 8, 1)],
        '│' => vec![(4, 0, 1, 16)],
        '┌' => vec![(4, 8, 4, 1), (4, 8, 1, 8)],
        '┐' => vec![(0, 8, 5, 1), (4, 8, 1, 8)],
        '└' => vec![(4, 8, 4, 1), (4, 0, 1, 9)],
        '┘' => vec![(0, 8, 5, 1), (4, 0, 1, 9)],
        _ => return None,
    })
}
