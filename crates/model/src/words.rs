//! Macro for enums whose variants have names in files.

use skyhop_units::{Quoted, did_you_mean};
use thiserror::Error;

/// Error about a name in a file that is none of the allowed names.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} is not a {kind}{hint}; expected {expected}", Quoted(name))]
pub struct UnknownName {
    /// Kind of name that was expected, such as "relay".
    pub kind: &'static str,
    /// The name as given.
    pub name: String,
    /// The allowed names that the user may have meant ([`did_you_mean`]).
    pub hint: String,
    /// The allowed names, quoted and separated by "or".
    pub expected: String,
}

impl UnknownName {
    /// Create the error for `name`, which is none of the names in `known`.
    pub fn new(kind: &'static str, name: &str, known: &[&str]) -> Self {
        let hint = did_you_mean(name, known.iter().copied());
        let known: Vec<String> = known.iter().map(|known| format!("\"{known}\"")).collect();
        Self { kind, name: name.to_owned(), hint, expected: known.join(" or ") }
    }
}

/// Define an enum whose variants have names in files: `Variant = "name"`.
///
/// The enum gets the list `ALL` of its variants, `name`, `Display` and `FromStr`, and (de)serializes by name
/// with serde and in JSON Schemas. The text in brackets is the kind of name that errors mention.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident [$what:literal] {
        $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash,
            enum_map::Enum,
            serde::Serialize,
            serde::Deserialize,
            schemars::JsonSchema,
        )]
        pub enum $name { $($(#[$variant_meta])* #[serde(rename = $text)] $variant,)+ }

        impl $name {
            /// All variants, in the order in which lists and tables show them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Name of the variant in files.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::UnknownName;
            fn from_str(word: &str) -> Result<Self, $crate::UnknownName> {
                let known = || Self::ALL.iter().map(|known| known.name()).collect::<Vec<_>>();
                Self::ALL
                    .iter()
                    .copied()
                    .find(|known| known.name() == word)
                    .ok_or_else(|| $crate::UnknownName::new($what, word, &known()))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::{Compat, Relay};

    #[test]
    fn a_word_is_read_and_written_by_its_name_everywhere() {
        for relay in Relay::ALL {
            assert_eq!(relay.name().parse(), Ok(*relay));
            let json = format!("\"{relay}\"");
            assert_eq!(serde_json::to_string(relay).unwrap(), json);
            assert_eq!(serde_json::from_str::<Relay>(&json).unwrap(), *relay);
        }
    }

    #[test]
    fn an_unknown_word_is_told_what_it_could_have_been() {
        let error = "stk".parse::<Compat>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"stk\" is not a compatibility mode; expected \"none\" or \"leoem\" or \"hypatia\""
        );
    }
}
