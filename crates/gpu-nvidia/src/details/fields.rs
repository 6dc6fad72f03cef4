//! Field values: values with an ID (`NVML_FI_*`) instead of a function.

use crate::call::reading;
use crate::code::Code;
use crate::device::Device;
use crate::raw::Data;
use gpu_core::{Absent, Error, Reach, Reading, Result};
use nvml_wrapper_sys::bindings::nvmlFieldValue_t;

/// Returns the field values with these IDs from one call: integers of the device itself, with scope
/// 0.
///
/// # Errors
/// `Device` or `Machine` if the call or one of the values returns such a code.
pub(super) fn values<const N: usize>(
    device: Device<'_>,
    numbers: [u32; N],
) -> Result<[Reading<u64>; N]> {
    values_in(device, 0, numbers)
}

/// Like [`values`], with another scope.
pub(super) fn values_in<const N: usize>(
    device: Device<'_>,
    scope: u32,
    numbers: [u32; N],
) -> Result<[Reading<u64>; N]> {
    let of = |number| nvmlFieldValue_t { fieldId: number, scopeId: scope, ..Data::zeroed() };
    let mut fields = numbers.map(of);
    let answered = reading(device.field_values(&mut fields))?;
    if let (Ok(()), Some(code)) = (answered, fatal_code(&fields)) {
        let what = format!("query GPU {} for a field value", device.index);
        let reported = format!("NVML reports: {code}");
        return Err(Error::new(code.of_value(), what).with_source(reported));
    }
    Ok(fields.map(|field| answered.and_then(|()| value(&field))))
}

/// Returns the first code of a field that affects more than its value.
fn fatal_code(fields: &[nvmlFieldValue_t]) -> Option<Code> {
    let codes = fields.iter().map(|field| Code(field.nvmlReturn));
    codes.filter(|code| code.0 != 0).find(|code| code.of_value().reach() != Reach::Field)
}

fn value(field: &nvmlFieldValue_t) -> Reading<u64> {
    match field.nvmlReturn {
        0 => whole_number(field).ok_or(Absent::Implausible),
        code => Err(Code(code).of_value().absent()),
    }
}

/// Decodes an integer by its type (`nvmlValueType_t`).
fn whole_number(field: &nvmlFieldValue_t) -> Option<u64> {
    let value = field.value;
    Some(match field.valueType {
        // SAFETY: each variant is a number, for which every bit pattern is valid.
        1 => unsafe { value.uiVal }.into(),
        // SAFETY: as above.
        2 => unsafe { value.ulVal },
        // SAFETY: as above.
        3 => unsafe { value.ullVal },
        // SAFETY: as above.
        4 => u64::try_from(unsafe { value.sllVal }).ok()?,
        // SAFETY: as above.
        5 => u64::try_from(unsafe { value.siVal }).ok()?,
        // SAFETY: as above.
        6 => unsafe { value.usVal }.into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvml_wrapper_sys::bindings::nvmlValue_t;

    fn answered(code: u32) -> nvmlFieldValue_t {
        let value = nvmlValue_t { ullVal: 66 };
        nvmlFieldValue_t { nvmlReturn: code, valueType: 3, value, ..Data::zeroed() }
    }

    #[test]
    fn field_values_have_individual_absence_reasons() {
        let read = |code| value(&answered(code));
        assert_eq!(read(0), Ok(66));
        assert_eq!(read(3), Err(Absent::NotSupported));
        assert_eq!(read(4), Err(Absent::NotPermitted));
        assert_eq!(read(999), Err(Absent::Failed));
        let typeless = nvmlFieldValue_t { valueType: 77, ..answered(0) };
        assert_eq!(value(&typeless), Err(Absent::Implausible));
    }

    #[test]
    fn device_code_in_field_value_fails_whole_call() {
        assert_eq!(fatal_code(&[answered(0), answered(3), answered(999)]), None);
        assert_eq!(fatal_code(&[answered(3), answered(15), answered(16)]), Some(Code(15)));
        assert_eq!(fatal_code(&[answered(18)]), Some(Code(18)));
    }

    #[test]
    fn field_value_is_decoded_by_type() {
        let read = |kind, value| {
            whole_number(&nvmlFieldValue_t { valueType: kind, value, ..Data::zeroed() })
        };
        let beyond = nvmlValue_t { ullVal: 7 << 32 | 66 };
        assert_eq!(read(1, beyond), Some(66));
        assert_eq!(read(3, beyond), Some(7 << 32 | 66));
        assert_eq!(read(6, beyond), Some(66));
        assert_eq!(read(2, beyond), Some(7 << 32 | 66));
        assert_eq!(read(4, beyond), Some(7 << 32 | 66));
        assert_eq!(read(4, nvmlValue_t { sllVal: -1 }), None);
        assert_eq!(read(5, beyond), Some(66));
        assert_eq!(read(5, nvmlValue_t { siVal: -1 }), None);
        assert_eq!(read(0, nvmlValue_t { dVal: 66.0 }), None);
    }
}
