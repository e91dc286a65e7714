//! Parser of "number unit" text, shared by all quantities. Exact for results below 2^50.

use thiserror::Error;

use crate::{Quoted, did_you_mean};

/// Reason why a text is not the quantity that was expected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum QuantityError {
    /// The text does not begin with a number.
    #[error("{} does not begin with a number{hint}; expected {expected}", Quoted(text))]
    NoNumber { text: String, hint: String, expected: &'static str },
    /// The unit is missing or is not one of this quantity's.
    #[error("{} has {}{hint}; expected {expected}", Quoted(text), unit_phrase(unit))]
    WrongUnit { text: String, unit: String, hint: String, expected: &'static str },
    /// The text is neither a date nor a time.
    #[error("{} is not a date or a time; expected {expected}", Quoted(text))]
    NoTime { text: String, expected: &'static str },
    /// The number is negative, not finite, or too large for the quantity.
    #[error("{} is out of range; expected {expected}", Quoted(text))]
    OutOfRange { text: String, expected: &'static str },
}

fn unit_phrase(unit: &str) -> String {
    if unit.is_empty() { "no unit".to_owned() } else { format!("the unit {}", Quoted(unit)) }
}

/// Split `text` into its number and unit and scale the number to the quantity's base unit.
///
/// `units` lists (name, factor to the base unit). The result is finite and not negative.
pub(crate) fn parse_scaled(
    text: &str,
    units: &[(&str, f64)],
    expected: &'static str,
) -> Result<f64, QuantityError> {
    let (number, unit) = split(text, expected)?;
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(QuantityError::WrongUnit {
            text: text.to_owned(),
            unit: unit.to_owned(),
            hint: did_you_mean(unit, units.iter().map(|(name, _)| *name)),
            expected,
        });
    };
    let value = number * factor;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(out_of_range(text, expected)) }
}

/// Parse as [`parse_scaled`] does, and round to a whole number of base units.
pub(crate) fn parse_whole(
    text: &str,
    units: &[(&str, f64)],
    expected: &'static str,
) -> Result<u64, QuantityError> {
    let value = parse_scaled(text, units, expected)?.round();
    // i64::MAX, not u64::MAX: files store these numbers as signed 64-bit integers.
    if value <= i64::MAX as f64 { Ok(value as u64) } else { Err(out_of_range(text, expected)) }
}

pub(crate) fn split<'t>(
    text: &'t str,
    expected: &'static str,
) -> Result<(f64, &'t str), QuantityError> {
    let trimmed = text.trim();
    let end = number_end(trimmed);
    let number = trimmed[..end].parse::<f64>().map_err(|_| QuantityError::NoNumber {
        text: text.to_owned(),
        hint: String::new(),
        expected,
    })?;
    Ok((number, trimmed[end..].trim_start()))
}

/// Length of the leading decimal number; an exponent counts only if digits follow it.
fn number_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mantissa = bytes
        .iter()
        .position(|b| !(b.is_ascii_digit() || matches!(b, b'.' | b'+' | b'-')))
        .unwrap_or(bytes.len());
    if !matches!(bytes.get(mantissa), Some(b'e' | b'E')) {
        return mantissa;
    }
    let sign = usize::from(matches!(bytes.get(mantissa + 1), Some(b'+' | b'-')));
    let digits = bytes[mantissa + 1 + sign..].iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 { mantissa } else { mantissa + 1 + sign + digits }
}

fn out_of_range(text: &str, expected: &'static str) -> QuantityError {
    QuantityError::OutOfRange { text: text.to_owned(), expected }
}

/// Format `value` base units with the largest unit that gives a short decimal number.
///
/// `units` is ordered from the smallest factor to the largest.
pub(crate) fn format_whole(value: u64, units: &[(&str, u64)]) -> String {
    let (name, factor) = units
        .iter()
        .rev()
        .find(|(_, factor)| value >= *factor && value.is_multiple_of((factor / 1000).max(1)))
        .unwrap_or(&units[0]);
    let (whole, rest) = (value / factor, value % factor);
    if rest == 0 {
        return format!("{whole} {name}");
    }
    let digits = factor.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    format!("{whole}.{} {name}", fraction.trim_end_matches('0'))
}

/// Implement serde and JSON Schema for a quantity whose text form is its `FromStr` and `Display`.
macro_rules! text_quantity {
    ($type:ty, $name:literal, $description:literal, $example:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl serde::de::Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("text with a unit, such as \"", $example, "\""))
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "description": $description,
                    "examples": [$example],
                })
            }
        }
    };
}
pub(crate) use text_quantity;
