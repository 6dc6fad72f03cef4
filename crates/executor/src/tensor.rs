//! Tensors: the values of operations.

mod print;

use gpu_graph::{Attr, Content, Dtype};

/// The largest number of dimensions, as in TensorFlow.
const MAX_DIMENSIONS: usize = 254;

/// A tensor: a shape, and the elements in the order of the indices, the last index fastest.
///
/// Its text is NumPy's (`print` of a `numpy.ndarray` with NumPy's default options).
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: Data,
}

/// The elements of a tensor, by type.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// `DT_FLOAT`
    Float(Vec<f32>),
    /// `DT_DOUBLE`
    Double(Vec<f64>),
    /// `DT_INT32`
    Int32(Vec<i32>),
    /// `DT_INT64`
    Int64(Vec<i64>),
}

/// A type of elements that operations compute.
pub(crate) trait Element: Copy + Default + PartialOrd + Send + Sync + 'static {
    fn wrap(elements: Vec<Self>) -> Data;
    fn of(data: &Data) -> Option<&[Self]>;
    fn read(bytes: &[u8]) -> Vec<Self>;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// Returns the quotient; `None` for a whole number divided by 0.
    fn div(self, other: Self) -> Option<Self>;
    fn scale(self, factor: f64) -> Self;
}

macro_rules! element {
    ($type:ty, $variant:ident, $add:expr, $sub:expr, $mul:expr, $div:expr) => {
        impl Element for $type {
            fn wrap(elements: Vec<Self>) -> Data {
                Data::$variant(elements)
            }
            fn of(data: &Data) -> Option<&[Self]> {
                if let Data::$variant(elements) = data { Some(elements) } else { None }
            }
            fn read(bytes: &[u8]) -> Vec<Self> {
                let (elements, _) = bytes.as_chunks();
                elements.iter().map(|bytes| Self::from_le_bytes(*bytes)).collect()
            }
            fn add(self, other: Self) -> Self {
                $add(self, other)
            }
            fn sub(self, other: Self) -> Self {
                $sub(self, other)
            }
            fn mul(self, other: Self) -> Self {
                $mul(self, other)
            }
            fn div(self, other: Self) -> Option<Self> {
                $div(self, other)
            }
            fn scale(self, factor: f64) -> Self {
                (self as f64 * factor) as Self
            }
        }
    };
}

element!(f32, Float, |a, b| a + b, |a, b| a - b, |a, b| a * b, |a, b| Some(a / b));
element!(f64, Double, |a, b| a + b, |a, b| a - b, |a, b| a * b, |a, b| Some(a / b));
// TensorFlow's whole numbers wrap around, and their quotients are truncated.
element!(i32, Int32, i32::wrapping_add, i32::wrapping_sub, i32::wrapping_mul, |a: i32, b| {
    (b != 0).then(|| a.wrapping_div(b))
});
element!(i64, Int64, i64::wrapping_add, i64::wrapping_sub, i64::wrapping_mul, |a: i64, b| {
    (b != 0).then(|| a.wrapping_div(b))
});

/// Calls a function with the elements of data as a slice.
macro_rules! each_type {
    ($data:expr, $elements:ident => $body:expr) => {
        match $data {
            $crate::tensor::Data::Float($elements) => $body,
            $crate::tensor::Data::Double($elements) => $body,
            $crate::tensor::Data::Int32($elements) => $body,
            $crate::tensor::Data::Int64($elements) => $body,
        }
    };
}
pub(crate) use each_type;

impl Tensor {
    /// Creates a tensor; `elements` must have as many as the shape.
    pub(crate) fn new<T: Element>(shape: Vec<usize>, elements: Vec<T>) -> Self {
        debug_assert_eq!(count(&shape), Some(elements.len()));
        Self { shape, data: T::wrap(elements) }
    }

    /// Returns the size of each dimension; none for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the elements.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// Returns the element type.
    pub fn dtype(&self) -> Dtype {
        match self.data {
            Data::Float(_) => Dtype::FLOAT,
            Data::Double(_) => Dtype::DOUBLE,
            Data::Int32(_) => Dtype::INT32,
            Data::Int64(_) => Dtype::INT64,
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        each_type!(&self.data, elements => elements.len())
    }

    /// Returns whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns the number of elements of a shape; `None` if it, or the product of the sizes above 0, is
/// too large, or if there are too many dimensions.
pub(crate) fn count(shape: &[usize]) -> Option<usize> {
    let above_zero = shape.iter().filter(|size| **size > 0);
    let product = above_zero.copied().try_fold(1_usize, usize::checked_mul)?;
    let fits = shape.len() <= MAX_DIMENSIONS && product <= isize::MAX as usize / 16;
    fits.then_some(if shape.contains(&0) { 0 } else { product })
}

/// Returns a shape as TensorFlow writes it: `[2,3]`.
pub(crate) fn shape_text(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    format!("[{}]", sizes.join(","))
}

/// Returns the shape in an attribute, if each dimension is known.
pub(crate) fn known_shape(shape: Option<&[i64]>) -> Option<Vec<usize>> {
    shape?.iter().map(|size| usize::try_from(*size).ok()).collect()
}

/// Returns the shape and the content of a constant, if it has a value of a type that operations
/// compute.
pub(crate) fn constant(attr: Option<&Attr>) -> Option<(Dtype, Vec<usize>, &Content)> {
    let Some(Attr::Tensor { dtype, shape, content: Some(content) }) = attr else { return None };
    // A `TensorProto` without a shape is a scalar.
    let shape = match shape {
        Some(shape) => known_shape(Some(shape))?,
        None => Vec::new(),
    };
    Some(((*dtype)?, shape, content))
}

/// Reads the elements of a constant with this number of elements; `None` if the content has
/// another number.
pub(crate) fn read(
    dtype: Dtype,
    shape: Vec<usize>,
    elements: usize,
    content: &Content,
) -> Option<Tensor> {
    fn of<T: Element>(shape: Vec<usize>, elements: usize, content: &Content) -> Option<Tensor> {
        let size = size_of::<T>();
        if !content.is_list && content.bytes.len() != elements.checked_mul(size)? {
            return None;
        }
        let mut read = T::read(&content.bytes);
        let last = read.last().copied().unwrap_or_default();
        read.resize(elements, last);
        Some(Tensor::new(shape, read))
    }
    match dtype {
        Dtype::FLOAT => of::<f32>(shape, elements, content),
        Dtype::DOUBLE => of::<f64>(shape, elements, content),
        Dtype::INT32 => of::<i32>(shape, elements, content),
        Dtype::INT64 => of::<i64>(shape, elements, content),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_element_of_a_list_stands_for_the_rest() {
        let of = |bytes: &[u8], is_list, elements| {
            let content = Content { bytes: bytes.to_vec(), is_list };
            read(Dtype::INT32, vec![elements], elements, &content)
        };
        let ints = |elements: &[i32]| Some(Tensor::new(vec![elements.len()], elements.to_vec()));
        assert_eq!(of(&[1, 0, 0, 0, 7, 0, 0, 0], true, 4), ints(&[1, 7, 7, 7]));
        assert_eq!(of(&[], true, 2), ints(&[0, 0]));
        assert_eq!(of(&[1, 0, 0, 0, 7, 0, 0, 0], true, 1), ints(&[1]));
        assert_eq!(of(&[1, 0, 0, 0, 7, 0, 0, 0], false, 2), ints(&[1, 7]));
        assert_eq!(of(&[1, 0, 0, 0, 7, 0, 0, 0], false, 3), None);
    }

    #[test]
    fn size_of_a_shape_is_bounded() {
        assert_eq!((count(&[]), count(&[2, 3]), count(&[4, 0])), (Some(1), Some(6), Some(0)));
        for shape in [&[usize::MAX, 2][..], &[usize::MAX, 0, 2], &[1; 255], &[1 << 61]] {
            assert_eq!(count(shape), None, "{shape:?}");
        }
    }
}
