//! The text of a tensor, as NumPy prints an array with its default options: 8 digits, lines of 75
//! characters, and only the ends of each dimension above 1,000 elements (`numpy/core/arrayprint.py`).

use super::{Element, Tensor, each_type};
use std::fmt;

/// The number of elements above which only the ends of each dimension are shown.
const SHOWN: usize = 1000;
/// The number of elements at each end.
const ENDS: usize = 3;
const LINE: usize = 75;
/// The number of digits after the point.
const DIGITS: usize = 8;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("[]");
        }
        if self.shape.is_empty() {
            // A scalar is printed as a number.
            return f.write_str(&each_type!(&self.data, elements => elements[0].scalar()));
        }
        let has_ends = self.len() > SHOWN;
        let mut shown = Vec::new();
        indices(&self.shape, has_ends, 0, &mut shown);
        let words = each_type!(&self.data, elements => {
            let shown: Vec<_> = shown.iter().map(|at| elements[*at]).collect();
            Text::words(&shown)
        });
        f.write_str(&nested(&self.shape, has_ends, 1, LINE, &mut words.iter()))
    }
}

/// Returns the positions along a dimension that are shown; `None` stands for those left out.
fn positions(size: usize, has_ends: bool) -> Vec<Option<usize>> {
    if has_ends && size > 2 * ENDS {
        let first = (0..ENDS).map(Some);
        first.chain([None]).chain((size - ENDS..size).map(Some)).collect()
    } else {
        (0..size).map(Some).collect()
    }
}

/// Adds the indices of the elements that are shown.
fn indices(shape: &[usize], has_ends: bool, start: usize, all: &mut Vec<usize>) {
    let Some((size, rest)) = shape.split_first() else { return all.push(start) };
    let stride: usize = rest.iter().product();
    for at in positions(*size, has_ends).into_iter().flatten() {
        indices(rest, has_ends, start + at * stride, all);
    }
}

/// Returns the text of an array of at least one dimension, `depth` brackets deep.
fn nested<'a>(
    shape: &[usize],
    has_ends: bool,
    depth: usize,
    width: usize,
    words: &mut impl Iterator<Item = &'a String>,
) -> String {
    let Some((size, rest)) = shape.split_first() else { return String::new() };
    let indent = " ".repeat(depth);
    let positions = positions(*size, has_ends);
    let mut text = String::from("[");
    if rest.is_empty() {
        let mut line = depth;
        for (at, position) in positions.iter().enumerate() {
            let word = match position {
                Some(_) => words.next().map_or("", String::as_str),
                None => "...",
            };
            // A space before the word, and a bracket or a space after it.
            if at > 0 && line + word.len() + 2 > width {
                text.push('\n');
                text.push_str(&indent);
                line = depth;
            } else if at > 0 {
                text.push(' ');
                line += 1;
            }
            text.push_str(word);
            line += word.len();
        }
    } else {
        let separator = "\n".repeat(rest.len()) + &indent;
        for (at, position) in positions.iter().enumerate() {
            if at > 0 {
                text.push_str(&separator);
            }
            match position {
                Some(_) => text.push_str(&nested(
                    rest,
                    has_ends,
                    depth + 1,
                    width.saturating_sub(1),
                    words,
                )),
                None => text.push_str("..."),
            }
        }
    }
    text.push(']');
    text
}

/// Elements as words of one width.
trait Text: Element {
    fn words(all: &[Self]) -> Vec<String>;
    fn scalar(self) -> String;
}

macro_rules! whole {
    ($type:ty) => {
        impl Text for $type {
            fn words(all: &[Self]) -> Vec<String> {
                right(all.iter().map(ToString::to_string).collect())
            }
            fn scalar(self) -> String {
                self.to_string()
            }
        }
    };
}
whole!(i32);
whole!(i64);

fn right(words: Vec<String>) -> Vec<String> {
    let width = words.iter().map(String::len).max().unwrap_or(0);
    words.into_iter().map(|word| format!("{word:>width$}")).collect()
}

macro_rules! fraction {
    ($type:ty) => {
        impl Text for $type {
            fn words(all: &[Self]) -> Vec<String> {
                let sizes = all.iter().filter(|x| x.is_finite() && **x != 0.0).map(|x| x.abs());
                let (mut least, mut most) = (Self::INFINITY, 0.0);
                for size in sizes {
                    (least, most) = (least.min(size), Self::max(most, size));
                }
                let has_exponent =
                    most > 0.0 && (most >= 1e8 || least < 1e-4 || most / least > 1000.0);
                let parts: Vec<[String; 3]> = all
                    .iter()
                    .map(|x| match (x.is_finite(), has_exponent) {
                        (false, _) => [special(f64::from(*x)), String::new(), String::new()],
                        (true, true) => scientific(&format!("{x:e}"), &format!("{x:.DIGITS$e}")),
                        (true, false) => positional(&format!("{x}"), &format!("{x:.DIGITS$}")),
                    })
                    .collect();
                joined(&parts, has_exponent)
            }
            fn scalar(self) -> String {
                let size = self.abs();
                match () {
                    () if !self.is_finite() => special(f64::from(self)),
                    () if size != 0.0 && !(1e-4..1e16).contains(&size) => {
                        let [whole, fraction, exponent] = scientific(&format!("{self:e}"), "");
                        let point = if fraction.is_empty() { "" } else { "." };
                        format!("{whole}{point}{fraction}{exponent}")
                    }
                    () => format!("{self:?}"),
                }
            }
        }
    };
}
fraction!(f32);
fraction!(f64);

fn special(x: f64) -> String {
    match x {
        _ if x.is_nan() => "nan".to_owned(),
        f64::INFINITY => "inf".to_owned(),
        _ => "-inf".to_owned(),
    }
}

/// Splits a number into its whole part, its digits after the point and its exponent: the shortest
/// text that identifies it, or the rounded text if that has too many digits.
fn positional(shortest: &str, rounded: &str) -> [String; 3] {
    let (whole, fraction) = shortest.split_once('.').unwrap_or((shortest, ""));
    let (whole, fraction) = match fraction.len() > DIGITS {
        true => rounded.split_once('.').unwrap_or((rounded, "")),
        false => (whole, fraction),
    };
    [whole.to_owned(), fraction.trim_end_matches('0').to_owned(), String::new()]
}

fn scientific(shortest: &str, rounded: &str) -> [String; 3] {
    let split = |text: &str| {
        let (number, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let [whole, fraction, _] = positional(number, number);
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        [whole, fraction, format!("e{sign}{digits:0>2}")]
    };
    let found = split(shortest);
    if found[1].len() > DIGITS && !rounded.is_empty() { split(rounded) } else { found }
}

/// Aligns the points. Digits that are missing are spaces, or zeros before an exponent.
fn joined(parts: &[[String; 3]], has_exponent: bool) -> Vec<String> {
    let is_number = |part: &&[String; 3]| part[0].ends_with(|last: char| last.is_ascii_digit());
    let numbers = || parts.iter().filter(is_number);
    let left = numbers().map(|part| part[0].len()).max().unwrap_or(0);
    let digits = numbers().map(|part| part[1].len()).max().unwrap_or(0);
    let fill = if has_exponent { '0' } else { ' ' };
    let word = |part: &[String; 3]| {
        let [whole, fraction, exponent] = part;
        match is_number(&part) {
            true => {
                let mut fraction = fraction.clone();
                fraction.extend(std::iter::repeat_n(fill, digits - fraction.len()));
                format!("{whole:>left$}.{fraction}{exponent}")
            }
            false => whole.clone(),
        }
    };
    right(parts.iter().map(word).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T: Element>(shape: &[usize], elements: Vec<T>) -> String {
        Tensor::new(shape.to_vec(), elements).to_string()
    }

    #[test]
    fn numbers_are_aligned_as_by_numpy() {
        assert_eq!(text(&[2, 2], vec![22_f32, 28.0, 49.0, 64.0]), "[[22. 28.]\n [49. 64.]]");
        assert_eq!(text(&[3], vec![1.5_f64, -2.0, 10.25]), "[ 1.5  -2.   10.25]");
        assert_eq!(text(&[2], vec![0.1_f32 + 0.2, 1.0]), "[0.3 1. ]");
        assert_eq!(text(&[2], vec![1.0_f64 / 3.0, 1.0]), "[0.33333333 1.        ]");
        assert_eq!(text(&[2], vec![1e10_f64, 1.5]), "[1.0e+10 1.5e+00]");
        assert_eq!(
            text(&[2], vec![1.123_456_789_123e10_f64, 1.0]),
            "[1.12345679e+10 1.00000000e+00]"
        );
        // The shortest text that identifies the number, not all its digits: it is 12300000256.
        assert_eq!(text(&[2], vec![1.23e10_f32, 1.0]), "[1.23e+10 1.00e+00]");
        assert_eq!(text(&[], vec![1.23456789012e20_f64]), "1.23456789012e+20");
        assert_eq!(text(&[2], vec![f32::NAN, -1.0]), "[nan -1.]");
        assert_eq!(text(&[1, 2, 2], vec![1_i32, -20, 3, 4]), "[[[  1 -20]\n  [  3   4]]]");
        assert_eq!(text(&[2, 1, 1], vec![7_i64, 8]), "[[[7]]\n\n [[8]]]");
        assert_eq!(
            (text(&[0, 2], Vec::<f32>::new()), text(&[], vec![22_f32])),
            ("[]".into(), "22.0".into())
        );
        assert_eq!(
            (text(&[], vec![7_i32]), text(&[], vec![1e20_f64])),
            ("7".into(), "1e+20".into())
        );
    }

    #[test]
    fn long_arrays_are_wrapped_and_shortened() {
        let lines = text(&[30], (0..30).map(|at| at as f32).collect());
        let first = lines.lines().next().unwrap();
        assert_eq!(
            first,
            "[ 0.  1.  2.  3.  4.  5.  6.  7.  8.  9. 10. 11. 12. 13. 14. 15. 16. 17."
        );
        assert!(lines.lines().nth(1).unwrap().starts_with(" 18. 19."), "{lines}");
        // A line has at most 74 characters before its bracket.
        let ones = text(&[38], vec![1_i32; 38]);
        assert_eq!(ones, format!("[{}\n 1]", ["1"; 37].join(" ")));
        // A dimension of six elements has nothing between its ends.
        assert_eq!(
            text(&[6, 200], vec![5_i32; 1200]),
            format!("[{}]", ["[5 5 5 ... 5 5 5]"; 6].join("\n "))
        );
        assert_eq!(text(&[1001], vec![5_i32; 1001]), "[5 5 5 ... 5 5 5]");
        assert_eq!(text(&[1000], vec![5_i32; 1000]).matches('5').count(), 1000);
        let rows = text(&[1001, 1], vec![5_i32; 1001]);
        assert_eq!(rows, "[[5]\n [5]\n [5]\n ...\n [5]\n [5]\n [5]]");
    }

    #[test]
    fn deep_array_breaks_no_line_before_its_first_element() {
        let (open, close) = ("[".repeat(40), "]".repeat(40));
        assert_eq!(text(&[1; 40], vec![5_i32]), format!("{open}5{close}"));
        // 39 outer brackets leave 36 characters to a line, fewer than its brackets take.
        let mut shape = vec![1; 40];
        shape[39] = 2;
        let indent = " ".repeat(40);
        assert_eq!(text(&shape, vec![5_i32, 6]), format!("{open}5\n{indent}6{close}"));
    }
}
