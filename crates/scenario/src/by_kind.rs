//! Serialization of enums as tables with a key that names the variant, such as `kind = "fixed"`.
//!
//! An enum of another crate needs the default form of its derived `Deserialize` and `Serialize`, and an `impl
//! Kinds`; then a field `#[serde(with = "by_kind")]` is read and written as such a table.

use serde::ser::Error;
use serde::{Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::keys::{Keys, Kinds, read_table};

/// Read a table whose keys all belong to one kind.
///
/// # Errors
/// The errors of [`Keys::kind`], and keys that no kind has.
pub fn deserialize<'de, D: Deserializer<'de>, T: Kinds>(deserializer: D) -> Result<T, D::Error> {
    read_table(deserializer, T::TAG, Keys::kind)
}

/// Write a value as the table that [`deserialize`] reads. The field may be flattened into a table
/// with other keys.
///
/// # Errors
/// Errors of the serializer, and values that are not enums.
pub fn serialize<T: Kinds, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let (kind, mut keys) = match serde_json::to_value(value).map_err(S::Error::custom)? {
        Value::String(kind) => (kind, Map::new()),
        Value::Object(one) => match one.into_iter().next() {
            Some((kind, Value::Object(keys))) => (kind, keys),
            _ => return Err(S::Error::custom("a kind has a struct of keys, or nothing")),
        },
        _ => return Err(S::Error::custom("only enums have kinds")),
    };
    keys.insert(T::TAG.to_owned(), Value::String(kind));
    keys.serialize(serializer)
}

/// Make the kind optional in a schema, if there is a default kind.
pub fn optional_kind<T: Kinds>(schema: &mut schemars::Schema) {
    let Some(Value::Array(kinds)) = schema.get_mut("oneOf") else { return };
    let is_default = |kind: &&mut Value| kind["properties"][T::TAG]["const"].as_str() == T::DEFAULT;
    if let Some(kind) = kinds.iter_mut().find(is_default)
        && let Some(required) = kind["required"].as_array_mut()
    {
        required.retain(|key| key != T::TAG);
    }
}
