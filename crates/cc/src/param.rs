//! Parameters of algorithms: declared in the algorithm's file, set by the user by name and text.

use crate::error::CcError;
use crate::module::comma_separated;

/// Parameter of an algorithm. Its internal value is a whole number from `least` to `most`; users write the
/// internal value divided by `scale`, or one of the names in `unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name of the parameter in the scenario.
    pub name: &'static str,
    /// Unit of the parameter, "" for a bare number, or the names it may take: `"published|freeze"`.
    pub unit: &'static str,
    /// Description of the parameter in one line.
    pub about: &'static str,
    /// Internal value that stands for 1.
    pub scale: u64,
    /// Default, as an internal value.
    pub initial: i64,
    /// Smallest value allowed, as an internal value.
    pub least: i64,
    /// Largest value allowed, as an internal value.
    pub most: i64,
}

const TIME_UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];

impl Param {
    /// Internal values of the parameters of `table`, in its order: `given` pairs of name and text as in the
    /// scenario, defaults for the others. `module` is the algorithm's name, for messages. They are in the form that
    /// the C file reads: negative values in two's complement.
    ///
    /// # Errors
    /// [`CcError::UnknownParam`], [`CcError::BadValue`], [`CcError::GivenTwice`].
    pub fn values(
        module: &str,
        table: &[Param],
        given: &[(&str, &str)],
    ) -> Result<Vec<u64>, CcError> {
        let mut values: Vec<u64> = table.iter().map(|param| param.initial as u64).collect();
        for (position, (name, text)) in given.iter().enumerate() {
            let index = table.iter().position(|param| param.name == *name).ok_or_else(|| {
                let known = match table.is_empty() {
                    true => "none".to_owned(),
                    false => comma_separated(table.iter().map(|param| param.name)),
                };
                let (module, param) = (module.to_owned(), (*name).to_owned());
                CcError::UnknownParam { module, param, known }
            })?;
            if given[..position].iter().any(|(earlier, _)| earlier == name) {
                let (module, param) = (module.to_owned(), (*name).to_owned());
                return Err(CcError::GivenTwice { module, param });
            }
            values[index] = table[index].parse(module, text)? as u64;
        }
        Ok(values)
    }

    /// Return the text that sets this parameter to the internal value `internal`.
    pub fn text_of(&self, internal: i64) -> String {
        match self.choices().map(|mut names| names.nth(internal as usize)) {
            Some(Some(name)) => name.to_owned(),
            _ if self.scale == 1 => internal.to_string(),
            _ => format!("{:.4}", internal as f64 / self.scale as f64),
        }
    }

    /// Parse a text to the internal value. A parameter in a unit of time also takes "10 s" or "200 ms".
    ///
    /// # Errors
    /// [`CcError::BadValue`], with the text that `module` expects.
    pub fn parse(&self, module: &str, value: &str) -> Result<i64, CcError> {
        self.internal_value(value.trim())
            .filter(|internal| (self.least..=self.most).contains(internal))
            .ok_or_else(|| CcError::BadValue {
                module: module.to_owned(),
                param: self.name.to_owned(),
                value: value.to_owned(),
                expected: self.expected(),
            })
    }

    fn internal_value(&self, value: &str) -> Option<i64> {
        if let Some(mut names) = self.choices() {
            return names.position(|name| name == value).map(|index| index as i64);
        }
        if self.scale == 1 && value.bytes().all(|digit| digit.is_ascii_digit()) {
            return value.parse().ok();
        }
        let scaled = self.in_own_unit(value)? * self.scale as f64;
        let rounded = scaled.round();
        let is_whole = (scaled - rounded).abs() <= 1e-9 * scaled.abs().max(1.0);
        let fits = (-9e15..9e15).contains(&rounded);
        (fits && (self.scale > 1 || is_whole)).then_some(rounded as i64)
    }

    /// Parse the number in `value`, converted from the unit after it to the parameter's own.
    fn in_own_unit(&self, value: &str) -> Option<f64> {
        let end = value.find(|c: char| c.is_ascii_alphabetic() && c != 'e' && c != 'E');
        let (number, unit) = value.split_at(end.unwrap_or(value.len()));
        let number: f64 = number.trim().parse().ok()?;
        if unit.is_empty() || unit == self.unit {
            return Some(number);
        }
        Some(number * nanoseconds_of(unit)? / nanoseconds_of(self.unit)?)
    }

    fn choices(&self) -> Option<std::str::Split<'static, char>> {
        self.unit.contains('|').then(|| self.unit.split('|'))
    }

    fn expected(&self) -> String {
        if self.choices().is_some() {
            return format!("one of {}", self.unit.replace('|', ", "));
        }
        let kind = if self.scale == 1 { "a whole number" } else { "a number" };
        let unit = if self.unit.is_empty() { "" } else { " " };
        let (least, most) = (self.text_of(self.least), self.text_of(self.most));
        format!("{kind} from {least} to {most}{unit}{}", self.unit)
    }
}

fn nanoseconds_of(unit: &str) -> Option<f64> {
    TIME_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, nanoseconds)| *nanoseconds)
}
