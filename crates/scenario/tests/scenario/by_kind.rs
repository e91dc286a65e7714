//! Enums as tables with a key that names the variant.

use serde::{Deserialize, Serialize};
use skyhop_scenario::by_kind;
use skyhop_scenario::keys::{Kinds, read};
use toml::Table;

/// Enum as another crate may define it.
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
    #[serde(with = "by_kind")]
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
        ("kind = \"ftp\"", "app.kind: unknown variant `ftp`, expected `bulk` or "),
        ("requests = 3", "app: missing field `kind`"),
        ("kind = \"request-response\"", "app: missing field `requests`"),
        (
            "kind = \"request-response\", requests = \"many\"",
            "app.requests: invalid type: string \"many\", expected ",
        ),
        (
            "kind = \"request-response\", requests = 1, think = { seconds = true }",
            "app.think.seconds: invalid type: boolean `true`, expected f64",
        ),
        (
            "kind = \"request-response\", requests = 1, size = 2",
            "app.size: unknown field `size`, expected one of `kind`, `requests`, `think`",
        ),
        (
            "kind = \"bulk\", requests = 3",
            "app.requests: does not belong to an application of kind \"bulk\" but of \"request-response\"",
        ),
    ] {
        let error = parse(&format!("app = {{ {text} }}")).unwrap_err();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    assert_eq!(
        parse("app = \"bulk\"").unwrap_err(),
        "app: \"bulk\" is not a table; write { kind = \"bulk\" }"
    );
    assert_eq!(parse("app = 3").unwrap_err(), "app: 3 is not a table");
}
