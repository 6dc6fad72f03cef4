//! The tensors that a pickle describes: persistent IDs and calls, read as data.

use super::{Machine, Ref, Value, View};
use crate::read::name::shown;

/// The maximum depth at which dictionaries are searched for tensors.
const MAX_DEPTH: usize = 8;
/// The maximum number of dimensions of a tensor.
const MAX_DIMENSIONS: usize = 64;
/// The maximum length of a tensor name in bytes.
const MAX_NAME_BYTES: usize = 1024;

impl<'a> Machine<'a> {
    /// Reads a persistent ID: `('storage', type, key, location, elements)`.
    pub(super) fn storage(&self, id: Ref) -> Value<'a> {
        let Value::Tuple(items) = self.value(id) else { return Value::Opaque };
        let [tag, kind, key, ..] = items.as_slice() else { return Value::Opaque };
        match (self.value(*tag), self.value(*kind), self.value(*key)) {
            (Value::Text("storage"), Value::Global(_, kind), Value::Text(key)) => {
                Value::Storage { kind, key }
            }
            _ => Value::Opaque,
        }
    }

    /// Returns the result of a known call, without calling anything.
    pub(super) fn call(&self, callable: Ref, arguments: Ref) -> Value<'a> {
        let Value::Global(module, name) = self.value(callable) else { return Value::Opaque };
        let Value::Tuple(items) = self.value(arguments) else { return Value::Opaque };
        match (*module, *name) {
            ("collections", "OrderedDict") => Value::Dictionary(Vec::new()),
            ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_tensor_v3") => {
                self.tensor(items).unwrap_or(Value::Opaque)
            }
            ("torch._utils", "_rebuild_parameter") => match items.first().map(|at| self.value(*at))
            {
                Some(tensor @ Value::Tensor { .. }) => tensor.clone(),
                _ => Value::Opaque,
            },
            _ => Value::Opaque,
        }
    }

    /// Reads the arguments of a rebuilt tensor: storage, offset, size and stride; in version 3,
    /// also the element type at the end.
    fn tensor(&self, items: &[Ref]) -> Option<Value<'a>> {
        let [storage, offset, size, ..] = items else { return None };
        let Value::Storage { kind, key } = self.value(*storage) else { return None };
        let Value::Tuple(dimensions) = self.value(*size) else { return None };
        if dimensions.len() > MAX_DIMENSIONS {
            return None;
        }
        let kind = match (*kind, items.get(6).map(|at| self.value(*at))) {
            ("UntypedStorage", Some(Value::Global("torch", dtype))) => dtype,
            (kind, _) => kind,
        };
        Some(Value::Tensor { kind, key, offset: self.integer(*offset)?, size: *size })
    }

    /// Returns a nonnegative integer.
    fn integer(&self, at: Ref) -> Option<u64> {
        match self.value(at) {
            Value::Integer(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// Returns the dimensions of a tensor.
    fn shape(&self, size: Ref) -> Option<Vec<u64>> {
        let Value::Tuple(size) = self.value(size) else { return None };
        size.iter().map(|at| self.integer(*at)).collect()
    }

    /// Collects the tensors of a dictionary and of nested ones. Each dictionary is searched once.
    pub(super) fn tensors(&self, root: Ref) -> Result<Vec<View>, String> {
        let mut views = Vec::new();
        // References can repeat names and shapes cheaply, so bound the size after expansion.
        let mut room = self.input.len().saturating_mul(8);
        let mut seen = std::collections::HashSet::from([root]);
        let mut left = vec![(root, String::new(), 0)];
        while let Some((at, prefix, depth)) = left.pop() {
            let Value::Dictionary(entries) = self.value(at) else { continue };
            let (pairs, _) = entries.as_chunks::<2>();
            for [key, value] in pairs {
                let Value::Text(key) = self.value(*key) else { continue };
                let name =
                    if prefix.is_empty() { (*key).to_owned() } else { format!("{prefix}.{key}") };
                if name.len() > MAX_NAME_BYTES {
                    return Err("a tensor name has more than 1024 bytes".to_owned());
                }
                match self.value(*value) {
                    Value::Tensor { kind, key, offset, size } => {
                        let Some(shape) = self.shape(*size) else { continue };
                        let unknown = || format!("element type '{}' is not known", shown(kind));
                        let encoding = encoding(kind).ok_or_else(unknown)?;
                        let cost = name.len() + key.len() + 8 * shape.len();
                        room = room.checked_sub(cost).ok_or("it expands to 8 times its size")?;
                        let storage = (*key).to_owned();
                        views.push(View { name, storage, encoding, offset: *offset, shape });
                    }
                    Value::Dictionary(_) if depth < MAX_DEPTH && seen.insert(*value) => {
                        room =
                            room.checked_sub(name.len()).ok_or("it expands to 8 times its size")?;
                        left.push((*value, name, depth + 1));
                    }
                    _ => {}
                }
            }
        }
        Ok(views)
    }
}

/// Returns the encoding for a storage class or element type of PyTorch.
fn encoding(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "DoubleStorage" | "float64" => "F64",
        "FloatStorage" | "float32" => "F32",
        "HalfStorage" | "float16" => "F16",
        "BFloat16Storage" | "bfloat16" => "BF16",
        "LongStorage" | "int64" => "I64",
        "IntStorage" | "int32" => "I32",
        "ShortStorage" | "int16" => "I16",
        "CharStorage" | "int8" | "QInt8Storage" => "I8",
        "ByteStorage" | "uint8" | "QUInt8Storage" => "U8",
        "BoolStorage" | "bool" => "BOOL",
        "ComplexFloatStorage" | "complex64" => "C64",
        "uint16" => "U16",
        "uint32" => "U32",
        "uint64" => "U64",
        "float8_e4m3fn" => "F8_E4M3",
        "float8_e5m2" => "F8_E5M2",
        "float8_e4m3fnuz" => "F8_E4M3FNUZ",
        "float8_e5m2fnuz" => "F8_E5M2FNUZ",
        "float8_e8m0fnu" => "F8_E8M0",
        _ => return None,
    })
}
