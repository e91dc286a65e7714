//! Predictions, each with the time at which it was made, so that a controller uses the newest one made so
//! far and not a later one.

use std::sync::Arc;

use super::Predictions;

/// Sequence of predictions over the time of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictionHistory {
    /// Predictions in ascending order of the time at which they were made.
    predictions: Arc<[Predictions]>,
    /// Start of the session, in seconds on the time axis of the predictions.
    began_s: f64,
}

impl PredictionHistory {
    /// Create the history for a session that starts at time 0 on the time axis of the predictions.
    ///
    /// # Errors
    /// The times at which the predictions were made do not ascend.
    pub fn new(predictions: Vec<Predictions>) -> Result<Self, String> {
        if predictions.windows(2).any(|pair| pair[0].from_s() >= pair[1].from_s()) {
            return Err("the instants of predictions do not ascend".to_owned());
        }
        Ok(Self { predictions: predictions.into(), began_s: 0.0 })
    }

    /// Return the history for a session that starts at `began_s`.
    #[must_use]
    pub fn for_session_at(&self, began_s: f64) -> Self {
        Self { began_s, ..self.clone() }
    }

    /// Return the newest prediction made by the session's time `now_s`, with times since the session's
    /// start; `None` before the first prediction.
    pub fn latest_at(&self, now_s: f64) -> Option<Predictions> {
        let made = self.predictions.partition_point(|one| one.from_s() <= now_s + self.began_s);
        Some(self.predictions[made.checked_sub(1)?].since(self.began_s))
    }
}
