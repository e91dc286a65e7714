//! Account of an import: what was taken from a file and what was left, as one line for the user.

use std::fmt;

use skyhop_model::one_line;
use skyhop_units::{Duration, Quoted};

use super::lines::Line;

/// Account of an import: the samples taken from a file, and the parts left unused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Samples that were taken, such as "600 answers" and "12 lost".
    pub taken: Vec<String>,
    /// Time from the first sample to the end of the last.
    pub span: Duration,
    /// Names of columns that were not used.
    pub unused: Vec<String>,
    /// Remarks on how the file was understood.
    pub notes: Vec<String>,
    passed_over: u64,
    /// First line that was passed over: its number and text.
    first_passed_over: Option<(usize, String)>,
}

impl Account {
    /// Account of a file of which every line was taken.
    pub fn of(count: usize, kind: &str, span: Duration) -> Self {
        Self { taken: vec![format!("{count} {kind}")], span, ..Self::default() }
    }

    /// Account of a file whose columns `unused` are not used.
    pub(super) fn without(unused: Vec<String>) -> Self {
        Self { unused, ..Self::default() }
    }

    /// Count a line that holds no sample and does not belong to the tool's output.
    pub(super) fn pass_over(&mut self, line: Line<'_>) {
        self.passed_over += 1;
        self.first_passed_over.get_or_insert_with(|| (line.number, line.text.to_owned()));
    }

    /// Number and text of the first line that was passed over.
    pub(super) fn first_passed_over(&self) -> Option<(usize, &str)> {
        self.first_passed_over.as_ref().map(|(number, text)| (*number, text.as_str()))
    }
}

/// Text of a span: in s below 3 min, in min below 2 h, in h below 2 d, else in d; such as "90 s" or "3 h".
fn rounded(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    let (unit_s, unit) = match seconds {
        0.0..180.0 => return format!("{} s", (seconds * 10.0).round() / 10.0),
        180.0..7_200.0 => (60.0, "min"),
        7_200.0..172_800.0 => (3_600.0, "h"),
        _ => (86_400.0, "d"),
    };
    format!("{} {unit}", (seconds / unit_s * 10.0).round() / 10.0)
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.taken.join(", "), rounded(self.span))?;
        for note in &self.notes {
            write!(f, "; {note}")?;
        }
        if !self.unused.is_empty() {
            write!(f, "; not used: {}", one_line(&self.unused.join(", ")))?;
        }
        if let Some((number, text)) = &self.first_passed_over {
            let lines = if self.passed_over == 1 { "line" } else { "lines" };
            let text = Quoted(text);
            write!(f, "; {} {lines} passed over, such as line {number}: {text}", self.passed_over)?;
        }
        Ok(())
    }
}
