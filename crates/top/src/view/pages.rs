//! A text on the whole screen.

use super::overlay::pieces;
use super::paint::{Paint, Tone};
use super::{to_ascii, words};
use crate::options::Marker;
use crate::pages::Pages;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

/// Draws the line above the text, the lines that fit, and the keys.
pub fn view_pages(pages: &Pages, area: Rect, buffer: &mut Buffer) {
    let area = area.intersection(*buffer.area());
    if area.is_empty() {
        return;
    }
    let mut paint = Paint { buffer, theme: pages.options.theme };
    let (head, lines) = &pages.page;
    let mut line = Rect { height: 1, ..area };
    paint.pieces(line, &pieces(head));
    if pages.paused {
        paint.put_right(area.x, area.right(), area.y, "  paused", Tone::Accent);
    }
    for text in lines.iter().skip(pages.top).take(pages.room()) {
        line.y += 1;
        paint.pieces(line, &pieces(text));
    }
    line.y = area.bottom() - 1;
    if line.y > area.y {
        words(&mut paint, line, Pages::scope(), Pages::offers);
        let below = lines.len().saturating_sub(pages.top + pages.room());
        if below > 0 {
            let text = format!("  {below} more");
            paint.put_right(area.x, area.right(), line.y, &text, Tone::Accent);
        }
    }
    if pages.options.ascii || pages.options.marker == Marker::Ascii {
        to_ascii(buffer, area);
    }
}
