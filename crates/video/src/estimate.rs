//! Throughput estimate of dash.js: the lower of a fast and a slow exponentially weighted mean, in which
//! the weight of a transfer is its duration times a factor (ThroughputController.js of dash.js 5.2.1;
//! Sabre computes the same without the factor).

/// Weight of one second of a transfer (weightDownloadTimeMultiplicationFactor, which is per ms).
const WEIGHT_PER_S: f64 = 1.5;

/// Fast and slow exponentially weighted mean of the throughput.
#[derive(Debug, Clone)]
pub(crate) struct Ewma {
    fast: Mean,
    slow: Mean,
}

/// Exponentially weighted mean that starts at 0, with the total weight of its samples to correct that bias.
#[derive(Debug, Clone)]
struct Mean {
    half_life_s: f64,
    value: f64,
    weight_s: f64,
}

impl Ewma {
    pub(crate) fn new(fast_half_life_s: f64, slow_half_life_s: f64) -> Self {
        let mean = |half_life_s| Mean { half_life_s, value: 0.0, weight_s: 0.0 };
        Self { fast: mean(fast_half_life_s), slow: mean(slow_half_life_s) }
    }

    /// Add a transfer with the throughput `bps` (bit/s) and the duration `took_s`.
    pub(crate) fn add(&mut self, bps: f64, took_s: f64) {
        self.fast.add(bps, WEIGHT_PER_S * took_s);
        self.slow.add(bps, WEIGHT_PER_S * took_s);
    }

    /// Estimated throughput in bit/s; `None` before the first transfer.
    pub(crate) fn bps(&self) -> Option<f64> {
        Some(self.fast.unbiased()?.min(self.slow.unbiased()?))
    }
}

impl Mean {
    fn add(&mut self, value: f64, weight_s: f64) {
        let kept = 0.5_f64.powf(weight_s / self.half_life_s);
        self.value = kept * self.value + (1.0 - kept) * value;
        self.weight_s += weight_s;
    }

    fn unbiased(&self) -> Option<f64> {
        let zero = 0.5_f64.powf(self.weight_s / self.half_life_s);
        (zero < 1.0).then(|| self.value / (1.0 - zero))
    }
}
