//! The number of values that a file may require: a few bytes of it can require many.

use super::BuildError;
use crate::def::Attr;

/// This many bytes of a text or of a shape count as one additional value.
const VALUE: usize = 64;

/// The remaining number of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget(usize);

impl Budget {
    pub(crate) const fn new(values: usize) -> Budget {
        Budget(values)
    }

    /// Takes values, before memory is reserved for them.
    ///
    /// # Errors
    /// [`BuildError::TooLarge`] if fewer are left.
    pub(crate) fn take(&mut self, values: usize) -> Result<(), BuildError> {
        self.0 = self.0.checked_sub(values).ok_or(BuildError::TooLarge)?;
        Ok(())
    }
}

/// Returns how many values an attribute holds.
pub(crate) fn count(attr: &Attr) -> usize {
    let dims = |dims: &[i64]| size_of_val(dims) / VALUE;
    1 + match attr {
        Attr::List(items) => items.iter().map(count).sum::<usize>(),
        Attr::Function(name, attrs) => {
            let of = |(name, attr): (&String, &Attr)| length(name) + count(attr);
            length(name) + attrs.iter().map(of).sum::<usize>()
        }
        Attr::Text(text) | Attr::Placeholder(text) => length(text),
        Attr::Shape(Some(shape)) | Attr::Tensor { shape: Some(shape), .. } => dims(shape),
        _ => 0,
    }
}

/// Returns how many additional values a text counts as because of its length.
pub(crate) fn length(text: &str) -> usize {
    text.len() / VALUE
}
