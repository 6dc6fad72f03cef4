//! The types of values that flow along edges.

use std::fmt;

/// An element type, numbered as in TensorFlow's `types.proto`.
///
/// There, a reference to a value has the number of its type plus 100; here it is a flag of
/// [`ValueType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dtype(u8);

/// Numbers, names and sizes in bits: 0 bits for types without a fixed size.
const TYPES: &[(u8, &str, u8)] = &[
    (1, "FLOAT", 32),
    (2, "DOUBLE", 64),
    (3, "INT32", 32),
    (4, "UINT8", 8),
    (5, "INT16", 16),
    (6, "INT8", 8),
    (7, "STRING", 0),
    (8, "COMPLEX64", 64),
    (9, "INT64", 64),
    (10, "BOOL", 8),
    (11, "QINT8", 8),
    (12, "QUINT8", 8),
    (13, "QINT32", 32),
    (14, "BFLOAT16", 16),
    (15, "QINT16", 16),
    (16, "QUINT16", 16),
    (17, "UINT16", 16),
    (18, "COMPLEX128", 128),
    (19, "HALF", 16),
    (20, "RESOURCE", 0),
    (21, "VARIANT", 0),
    (22, "UINT32", 32),
    (23, "UINT64", 64),
    (24, "FLOAT8_E5M2", 8),
    (25, "FLOAT8_E4M3FN", 8),
    (26, "FLOAT8_E4M3FNUZ", 8),
    (27, "FLOAT8_E4M3B11FNUZ", 8),
    (28, "FLOAT8_E5M2FNUZ", 8),
    (29, "INT4", 4),
    (30, "UINT4", 4),
    (31, "INT2", 2),
    (32, "UINT2", 2),
    (33, "FLOAT4_E2M1FN", 4),
];

/// The offset of reference types in `types.proto`.
const REFERENCE: u32 = 100;

impl Dtype {
    /// `DT_FLOAT`
    pub const FLOAT: Dtype = Dtype(1);
    /// `DT_DOUBLE`
    pub const DOUBLE: Dtype = Dtype(2);
    /// `DT_INT32`
    pub const INT32: Dtype = Dtype(3);
    /// `DT_STRING`
    pub const STRING: Dtype = Dtype(7);
    /// `DT_INT64`
    pub const INT64: Dtype = Dtype(9);
    /// `DT_RESOURCE`: a handle to state on a device.
    pub const RESOURCE: Dtype = Dtype(20);
    /// `DT_VARIANT`: a value that only its operations understand.
    pub const VARIANT: Dtype = Dtype(21);

    /// Returns the type with a name, in any case and with or without the prefix: `DT_FLOAT`,
    /// `float`.
    pub fn named(name: &str) -> Option<Dtype> {
        let bare = match name.get(..3) {
            Some(prefix) if prefix.eq_ignore_ascii_case("DT_") => &name[3..],
            _ => name,
        };
        let found = TYPES.iter().find(|(_, known, _)| known.eq_ignore_ascii_case(bare));
        found.map(|(number, ..)| Dtype(*number))
    }

    /// Returns the size of an element in bits; `None` if it has no fixed size.
    pub fn bits(self) -> Option<u32> {
        Some(u32::from(self.entry().2)).filter(|bits| *bits > 0)
    }

    /// Returns the number in `types.proto`.
    pub fn number(self) -> u32 {
        u32::from(self.0)
    }

    fn entry(self) -> &'static (u8, &'static str, u8) {
        // The numbers are 1, 2, 3 … without a gap; a test checks it.
        &TYPES[usize::from(self.0) - 1]
    }
}

impl fmt::Display for Dtype {
    /// Writes `DT_FLOAT`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DT_{}", self.entry().1)
    }
}

/// The type of an input or an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueType {
    /// The element type.
    pub dtype: Dtype,
    /// Whether it refers to state of the operation that made it: its users must be on the same
    /// device.
    pub reference: bool,
}

impl ValueType {
    /// A plain value.
    pub const fn of(dtype: Dtype) -> Self {
        ValueType { dtype, reference: false }
    }

    /// A reference to a value.
    pub(crate) const fn reference_to(dtype: Dtype) -> Self {
        ValueType { dtype, reference: true }
    }

    /// Returns the type with this number in `types.proto`, which is 100 higher for references.
    pub fn numbered(number: u32) -> Option<Self> {
        let (number, reference) = match number {
            REFERENCE.. => (number - REFERENCE, true),
            _ => (number, false),
        };
        let dtype = TYPES.iter().find(|(known, ..)| u32::from(*known) == number)?;
        Some(ValueType { dtype: Dtype(dtype.0), reference })
    }

    /// Returns the type with a name such as `DT_FLOAT`, `float` or `DT_FLOAT_REF`.
    pub fn named(name: &str) -> Option<Self> {
        let bare = name.strip_suffix("_REF").or_else(|| name.strip_suffix("_ref"));
        match bare {
            Some(bare) => Dtype::named(bare).map(ValueType::reference_to),
            None => Dtype::named(name).map(ValueType::of),
        }
    }

    /// Returns whether its producer and its users must be on one device: references and resources.
    pub fn binds(self) -> bool {
        self.reference || self.dtype == Dtype::RESOURCE
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, if self.reference { "_REF" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        for (at, (number, name, bits)) in TYPES.iter().enumerate() {
            assert_eq!(usize::from(*number), at + 1, "{name}");
            let plain = ValueType::numbered(u32::from(*number)).unwrap();
            let reference = ValueType::numbered(u32::from(*number) + 100).unwrap();
            assert!(!plain.reference && reference.reference);
            assert_eq!(plain.dtype, reference.dtype);
            assert_eq!(plain.dtype.number(), u32::from(*number));
            assert_eq!(ValueType::named(&plain.to_string()), Some(plain));
            assert_eq!(ValueType::named(&reference.to_string()), Some(reference));
            assert_eq!(Dtype::named(&name.to_lowercase()), Some(plain.dtype));
            assert_eq!(plain.dtype.bits(), (*bits > 0).then_some(u32::from(*bits)), "{name}");
        }
        let sizes = [Dtype::FLOAT, Dtype::INT64, Dtype::STRING, Dtype::RESOURCE].map(Dtype::bits);
        assert_eq!(sizes, [Some(32), Some(64), None, None]);
        assert_eq!((ValueType::numbered(0), ValueType::numbered(100)), (None, None));
        assert_eq!((Dtype::named("DT_"), Dtype::named("é"), Dtype::named("")), (None, None, None));
    }

    #[test]
    fn references_and_resources_bind() {
        assert!(ValueType::reference_to(Dtype::FLOAT).binds());
        assert!(ValueType::of(Dtype::RESOURCE).binds());
        assert!(!ValueType::of(Dtype::FLOAT).binds());
        assert!(!ValueType::of(Dtype::VARIANT).binds());
    }
}
