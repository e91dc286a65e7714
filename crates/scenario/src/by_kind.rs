//! Enums as tables with a key that names the variant, such as `kind = "fixed"`.
//!
//! An enum of another crate needs its derived `Deserialize` and `Serialize` as they are by default, and
//! an `impl Kinds`; then a field `#[serde(with = "by_kind")]` is read and written as such a table.

use serde::ser::Error;
use serde::{Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::keys::{Keys, Kinds, read_parts};

/// Reads a table that is all of one kind.
///
/// # Errors
/// As [`Keys::kind`], and keys that no kind has.
pub fn deserialize<'de, D: Deserializer<'de>, T: Kinds>(deserializer: D) -> Result<T, D::Error> {
    read_parts(deserializer, Keys::kind)
}

/// Writes what [`deserialize`] reads; flattened, among other keys.
///
/// # Errors
/// Those of the serializer, and of a value that is no enum.
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

/// Lets a schema leave out the key that says the kind where there is one by default.
pub fn optional_kind<T: Kinds>(schema: &mut schemars::Schema) {
    let Some(Value::Array(kinds)) = schema.get_mut("oneOf") else { return };
    let is_default = |kind: &&mut Value| kind["properties"][T::TAG]["const"].as_str() == T::DEFAULT;
    if let Some(kind) = kinds.iter_mut().find(is_default)
        && let Some(required) = kind["required"].as_array_mut()
    {
        required.retain(|key| key != T::TAG);
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use toml::Table;

    use super::*;
    use crate::keys::read;

    /// As an enum of another crate may be.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum App {
        Bulk,
        RequestResponse {
            requests: u32,
            #[serde(default)]
            think: Think,
        },
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Think {
        seconds: f64,
    }

    impl Kinds for App {
        const NOUN: &'static str = "an application";
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Flow {
        #[serde(with = "super")]
        app: App,
    }

    fn parse(text: &str) -> Result<Flow, String> {
        read(text.parse::<Table>().unwrap().into()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_enum_of_another_crate_is_read_and_written_by_its_kind() {
        let text = "app = { kind = \"request-response\", requests = 3, think = { seconds = 0.5 } }";
        let app = App::RequestResponse { requests: 3, think: Think { seconds: 0.5 } };
        assert_eq!(parse(text).unwrap(), Flow { app });
        for text in [text, "app = { kind = \"bulk\" }"] {
            let written = serde_json::to_string(&parse(text).unwrap()).unwrap();
            let given: Table = text.parse().unwrap();
            assert_eq!(serde_json::from_str::<Table>(&written).unwrap(), given);
        }
    }

    #[test]
    fn errors_name_the_key_however_deep_it_stands() {
        for (text, expected) in [
            ("kind = \"ftp\"", "app.kind: there is no `ftp`; expected `bulk` or "),
            ("requests = 3", "app: the key `kind` is missing"),
            ("kind = \"request-response\"", "app: the key `requests` is missing"),
            (
                "kind = \"request-response\", requests = \"many\"",
                "app.requests: expected a whole number, 0 or more, not the text \"many\"",
            ),
            (
                "kind = \"request-response\", requests = 1, think = { seconds = true }",
                "app.think.seconds: expected a number, not true",
            ),
            (
                "kind = \"request-response\", requests = 1, size = 2",
                "app.size: unknown key `size`; expected one of `kind`, `requests`, `think`",
            ),
            (
                "kind = \"bulk\", requests = 3",
                "app.requests: does not belong to an application of kind \"bulk\"",
            ),
        ] {
            let error = parse(&format!("app = {{ {text} }}")).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
