//! The numbers of a value, relative to those of another value.
//!
//! Numbers of the same field are coded together, as multiples of their greatest common divisor: CPU
//! time advances in hundredths of a second and memory in pages. Each is compared with its
//! counterpart in the base, or with the prediction that it continues to change as it did before the
//! base (an energy counter, the CPU time of a busy process). A number that did not change before
//! rarely changes now, so it costs almost no space.

use crate::range::{Bit, Coder, Number};
use crate::rows::Sources;
use crate::shape::Flat;
use crate::varint::{unzigzag, zigzag};
use std::sync::Arc;

/// The most columns that a value may have; each takes a few kilobytes for its model.
const MAX_COLUMNS: usize = 1024;

/// How a number is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Not in the base: predicted from the previous number in its column.
    New,
    /// Same as in the base.
    Steady,
    /// Predicted from its change up to the base.
    Steep,
}

/// The statistics of the numbers of a column.
#[derive(Clone, Debug, Default)]
struct Model {
    divisor: Number,
    is_steep: Bit,
    /// Indexed by kind, by whether the number changed up to the base, and by whether the previous
    /// number in its column differs from its prediction.
    differs: [[[Bit; 2]; 2]; 3],
    differences: [Number; 3],
}

/// The statistics of the numbers of all columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Models {
    differs: Vec<Bit>,
    columns: Vec<Option<Arc<Model>>>,
}

/// The numbers that others are compared with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    values: Vec<u64>,
    /// The change of each number in `steps`.
    changes: Vec<i64>,
    /// How many frames ago the numbers were those of this frame's own base; 0 if it has none.
    steps: u32,
    models: Models,
}

impl Numbers {
    /// Returns a number of the base and its change, to compare another with.
    fn at(&self, index: u32) -> (u64, i64) {
        (self.values[index as usize], self.changes[index as usize])
    }
}

/// Codes the numbers of a value: an encoder writes them, a decoder fills them in.
///
/// `steps` is the number of frames since the base. Returns these numbers as a base for others;
/// `None` if there are too many columns.
pub(crate) fn code<C: Coder>(
    coder: &mut C,
    flat: &mut Flat,
    sources: &Sources,
    base: &Numbers,
    steps: u32,
) -> Option<Numbers> {
    let mut models = base.models.clone();
    flat.numbers.resize(flat.columns.len(), 0);
    let mut changes = vec![0; flat.columns.len()];
    let (order, ends) = by_column(&flat.columns);
    models.columns.resize(models.columns.len().max(ends.len()), None);
    models.differs.resize(models.columns.len(), Bit::default());
    let (mut start, mut used) = (0, 0);
    for (column, end) in ends.into_iter().enumerate() {
        let indexes = &order[start..end];
        start = end;
        if indexes.is_empty() {
            continue;
        }
        used += 1;
        if used > MAX_COLUMNS {
            return None;
        }
        let mut column_numbers = Column {
            indexes,
            numbers: &mut flat.numbers,
            changes: &mut changes,
            sources,
            base,
            steps,
        };
        let differs = C::WRITES && column_numbers.differ();
        match coder.bit(differs, &mut models.differs[column]) {
            true => {
                let model = models.columns[column].get_or_insert_default();
                column_numbers.code(coder, Arc::make_mut(model));
            }
            false => column_numbers.keep(),
        }
    }
    Some(Numbers { values: flat.numbers.clone(), changes, steps, models })
}

/// Returns the indices of all numbers by column, and the end of each column in them.
fn by_column(columns: &[u32]) -> (Vec<u32>, Vec<usize>) {
    let count = columns.iter().max().map_or(0, |last| *last as usize + 1);
    let mut ends = vec![0; count];
    columns.iter().for_each(|column| ends[*column as usize] += 1);
    let mut sum = 0;
    for end in &mut ends {
        // This is the start of the column; it moves to its end as the column is filled.
        sum += std::mem::replace(end, sum);
    }
    let mut order = vec![0; columns.len()];
    for (index, column) in columns.iter().enumerate() {
        let next = &mut ends[*column as usize];
        order[*next] = index as u32;
        *next += 1;
    }
    (order, ends)
}

/// The numbers of one column.
struct Column<'a> {
    indexes: &'a [u32],
    numbers: &'a mut [u64],
    changes: &'a mut [i64],
    sources: &'a Sources,
    base: &'a Numbers,
    steps: u32,
}

impl Column<'_> {
    /// Returns for each number its index, the number that it is compared with, and that number's
    /// change; `None` for a number that is not in the base.
    fn compared(&self) -> impl Iterator<Item = (usize, Option<(u64, i64)>)> + '_ {
        self.indexes.iter().map(|index| {
            let index = *index as usize;
            (index, self.sources.0[index].map(|source| self.base.at(source)))
        })
    }

    /// Returns the difference of each number from the number that it is compared with.
    fn differences(&self) -> impl Iterator<Item = (i64, Option<(u64, i64)>)> + '_ {
        let mut before = 0;
        self.compared().map(move |(index, base)| {
            let number = self.numbers[index];
            let from = match base {
                Some((value, _)) => value,
                None => std::mem::replace(&mut before, number),
            };
            (number.wrapping_sub(from) as i64, base)
        })
    }

    fn differ(&self) -> bool {
        self.differences().any(|(difference, _)| difference != 0)
    }

    /// Fills in numbers that do not differ.
    fn keep(&mut self) {
        for index in self.indexes {
            let index = *index as usize;
            self.numbers[index] = self.sources.0[index].map_or(0, |source| self.base.at(source).0);
        }
    }

    /// Returns the greatest common divisor of all differences.
    fn divisor(&self) -> u64 {
        let mut divisor = 0;
        for (difference, _) in self.differences() {
            let (mut a, mut b) = (difference.unsigned_abs(), divisor);
            while b != 0 {
                (a, b) = (b, a % b);
            }
            divisor = a;
            if divisor == 1 {
                break;
            }
        }
        divisor
    }

    /// Returns by how many divisors a number differs if it continues to change as before.
    fn expected(&self, change: i64, divisor: u64) -> i64 {
        if change == 0 || self.base.steps == 0 {
            return 0;
        }
        let change = i128::from(change) * i128::from(self.steps) / i128::from(self.base.steps);
        (change / i128::from(divisor.max(1))) as i64
    }

    /// Returns whether the numbers are closer to their predictions than to the base.
    fn is_steep(&self, divisor: u64) -> bool {
        let bits = |difference: i64| i64::from(64 - zigzag(difference).leading_zeros());
        let gain = |(difference, base): (i64, Option<(u64, i64)>)| {
            let Some((_, change)) = base else { return 0 };
            let difference = difference.wrapping_div(divisor.max(1) as i64);
            bits(difference) - bits(difference.wrapping_sub(self.expected(change, divisor)))
        };
        self.base.steps > 0 && self.differences().map(gain).sum::<i64>() > 0
    }

    fn code<C: Coder>(&mut self, coder: &mut C, model: &mut Model) {
        let divisor = if C::WRITES { self.divisor() } else { 0 };
        let divisor = model.divisor.code(coder, divisor);
        let is_steep = C::WRITES && self.is_steep(divisor);
        let is_steep = coder.bit(is_steep, &mut model.is_steep);
        let (mut before, mut differed) = (0, false);
        for index in self.indexes {
            let index = *index as usize;
            let base = self.sources.0[index].map(|source| self.base.at(source));
            let (kind, (from, change)) = match base {
                None => (Kind::New, (before, 0)),
                Some(base) if is_steep => (Kind::Steep, base),
                Some(base) => (Kind::Steady, base),
            };
            let expected = if is_steep { self.expected(change, divisor) } else { 0 };
            let difference = self.numbers[index].wrapping_sub(from) as i64;
            let multiple = difference.wrapping_div(divisor.max(1) as i64);
            let surprise = multiple.wrapping_sub(expected);
            let kind = kind as usize;
            let differs = &mut model.differs[kind][usize::from(change != 0)][usize::from(differed)];
            differed = coder.bit(surprise != 0, differs);
            let surprise = match differed {
                true => {
                    let coded = zigzag(surprise).wrapping_sub(1);
                    unzigzag(model.differences[kind].code(coder, coded).wrapping_add(1))
                }
                false => 0,
            };
            let difference = surprise.wrapping_add(expected).wrapping_mul(divisor as i64);
            let number = from.wrapping_add_signed(difference);
            self.numbers[index] = number;
            match base {
                Some(_) => self.changes[index] = difference,
                None => before = number,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_grouped_by_column() {
        let (order, ends) = by_column(&[2, 0, 2, 1, 0]);
        assert_eq!((order, ends), (vec![1, 4, 3, 0, 2], vec![2, 3, 5]));
        assert_eq!(by_column(&[]), (vec![], vec![]));
    }
}
