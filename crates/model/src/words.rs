//! How an enum gets its names in files.

use skyhop_units::Quoted;
use thiserror::Error;

/// A word that stands for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} is not a {what}; expected {expected}", Quoted(word))]
pub struct UnknownWord {
    /// What the word should have stood for.
    pub what: &'static str,
    /// The word given.
    pub word: String,
    /// The words there are.
    pub expected: String,
}

impl UnknownWord {
    /// `word` is not among those that are `known`.
    pub fn new(what: &'static str, word: &str, known: &[&str]) -> Self {
        let known: Vec<String> = known.iter().map(|known| format!("\"{known}\"")).collect();
        Self { what, word: word.to_owned(), expected: known.join(" or ") }
    }
}

/// Defines an enum whose variants stand in files by name: `Variant = "name"`.
///
/// It gets the list `ALL` of its variants, `name`, `Display` and `FromStr`, and reads and writes
/// itself by name with serde and in JSON Schemas. What stands in brackets says in errors what a
/// word should have been.
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
            /// All of them, in the order in which lists and tables show them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in files.
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
            type Err = $crate::UnknownWord;
            fn from_str(word: &str) -> Result<Self, $crate::UnknownWord> {
                let known = || Self::ALL.iter().map(|known| known.name()).collect::<Vec<_>>();
                Self::ALL
                    .iter()
                    .copied()
                    .find(|known| known.name() == word)
                    .ok_or_else(|| $crate::UnknownWord::new($what, word, &known()))
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
