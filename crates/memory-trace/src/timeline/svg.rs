//! Text and paths of SVG.

use std::fmt::Write;

/// A path whose coordinates are tenths of a unit of the picture.
#[derive(Debug, Default)]
pub(super) struct Path {
    text: String,
    at: (i64, i64),
}

impl Path {
    pub(super) fn move_to(&mut self, x: i64, y: i64) {
        let _ = write!(self.text, "M{} {}", Tenths(x), Tenths(y));
        self.at = (x, y);
    }

    /// Draws a horizontal line to `x`.
    pub(super) fn across(&mut self, x: i64) {
        if x != self.at.0 {
            let _ = write!(self.text, "h{}", Tenths(x - self.at.0));
            self.at.0 = x;
        }
    }

    /// Draws a vertical line to `y`.
    pub(super) fn upright(&mut self, y: i64) {
        if y != self.at.1 {
            let _ = write!(self.text, "v{}", Tenths(y - self.at.1));
            self.at.1 = y;
        }
    }

    pub(super) fn close(&mut self) {
        self.text.push('z');
    }

    /// Adds a rectangle.
    pub(super) fn rectangle(&mut self, x: i64, y: i64, width: i64, height: i64) {
        self.move_to(x, y);
        self.across(x + width);
        self.upright(y + height);
        self.across(x);
        self.close();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns it as the `d` attribute of an element.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// A number of tenths, formatted in units.
pub(super) struct Tenths(pub(super) i64);

impl std::fmt::Display for Tenths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (self.0.unsigned_abs() / 10, self.0.unsigned_abs() % 10);
        match (whole, rest) {
            (whole, 0) => write!(f, "{sign}{whole}"),
            (0, rest) => write!(f, "{sign}.{rest}"),
            (whole, rest) => write!(f, "{sign}{whole}.{rest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_and_skip_empty_moves() {
        let mut path = Path::default();
        path.rectangle(105, -3, 10, 0);
        path.move_to(0, 0);
        path.across(0);
        path.upright(-15);
        assert_eq!(path.text(), "M10.5 -.3h1h-1zM0 0v-1.5");
    }

    #[test]
    fn tenths_are_short() {
        for (tenths, text) in
            [(0, "0"), (5, ".5"), (-5, "-.5"), (10, "1"), (-10, "-1"), (-123, "-12.3")]
        {
            assert_eq!(Tenths(tenths).to_string(), text);
        }
    }
}
