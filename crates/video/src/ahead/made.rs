//! Predictions by when they were made: whoever plans knows the last that were made by then, and no later one.

use std::sync::Arc;

use super::Predictions;

/// See the [module](self).
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// By when they were made, ascending.
    predictions: Arc<[Predictions]>,
    /// When the session began, in their time.
    began_s: f64,
}

impl Made {
    /// What was predicted in a time in which the session begins at 0.
    ///
    /// # Errors
    /// They are not in the order in which they were made.
    pub fn new(predictions: Vec<Predictions>) -> Result<Self, String> {
        if predictions.windows(2).any(|pair| pair[0].from_s() >= pair[1].from_s()) {
            return Err("the instants of predictions do not ascend".to_owned());
        }
        Ok(Self { predictions: predictions.into(), began_s: 0.0 })
    }

    /// The same for a session that begins at `began_s`.
    #[must_use]
    pub fn for_session_at(&self, began_s: f64) -> Self {
        Self { began_s, ..self.clone() }
    }

    /// The last that were made by `now_s` of the session, in the session's time; `None` before the first.
    pub fn by(&self, now_s: f64) -> Option<Predictions> {
        let made = self.predictions.partition_point(|one| one.from_s() <= now_s + self.began_s);
        Some(self.predictions[made.checked_sub(1)?].since(self.began_s))
    }
}
