//! Formats of other tools' files, with the options of each.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use skyhop_units::did_you_mean;

use crate::ConvertError;

/// File format of another tool, with its options.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Name of the format on the command line.
    pub name: &'static str,
    /// Names of the format's own options, with underscores.
    pub options: &'static [&'static str],
}

/// Options that the user gave for one file, as text.
pub(crate) struct Options<'o> {
    /// File name, for messages.
    pub origin: &'o str,
    pub texts: &'o BTreeMap<String, String>,
}

impl Options<'_> {
    /// Check that the format exists and has every option that was given.
    pub fn check(&self, formats: &[Format], name: &str) -> Result<(), ConvertError> {
        let Some(format) = formats.iter().find(|format| format.name == name) else {
            let known: Vec<&str> = formats.iter().map(|format| format.name).collect();
            let hint = did_you_mean(name, known.iter().copied());
            let what =
                format!("\"{name}\" is not a format{hint}; expected one of {}", known.join(", "));
            return Err(ConvertError::option(self.origin, "--format", what));
        };
        match self.texts.keys().find(|key| !format.options.contains(&key.as_str())) {
            Some(key) => Err(self.wrong(key, format!("the format {name} does not use it"))),
            None => Ok(()),
        }
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.texts.get(key).map(String::as_str)
    }

    /// Parse the quantity that an option holds.
    pub fn quantity<T: FromStr<Err: Display>>(&self, key: &str) -> Result<Option<T>, ConvertError> {
        let parse = |text: &str| text.parse().map_err(|e: T::Err| self.wrong(key, e.to_string()));
        self.text(key).map(parse).transpose()
    }

    pub fn wrong(&self, key: &str, what: impl Into<String>) -> ConvertError {
        ConvertError::option(self.origin, format!("--{}", key.replace('_', "-")), what)
    }
}
