//! Samples, with medians and percentiles, never a mean, which one outlier can move.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Samples of one quantity, in the order of measurement.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds a sample.
    pub fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All samples.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The median; NaN without samples.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    /// The percentile by nearest rank; NaN without samples.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank among fewer than 2^53 samples"
    )]
    pub fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
    }

    /// The maximum; NaN without samples.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.percentile(100.0)
    }

    /// A summary of many samples: the minimum, every fifth percentile, the 99th, the 99.9th and the maximum.
    #[must_use]
    pub fn percentiles(&self) -> Self {
        let every_fifth = (0..20).map(|step| f64::from(step) * 5.0);
        every_fifth
            .chain([99.0, 99.9, 100.0])
            .map(|percent| self.percentile(percent))
            .collect()
    }

    /// Each sample divided by the other's sample of the same round.
    #[must_use]
    pub fn over(&self, other: &Self) -> Self {
        Self(
            self.0
                .iter()
                .zip(&other.0)
                .map(|(ours, theirs)| ours / theirs)
                .collect(),
        )
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

impl Extend<f64> for Samples {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, samples: I) {
        self.0.extend(samples);
    }
}

/// A duration in milliseconds.
#[must_use]
pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The rate per second since `start`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 of anything")]
pub fn rate(count: usize, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64()
}

/// A fixed pseudo-random sequence (SplitMix64), so that two runs visit the same members in the same order.
#[derive(Debug)]
pub struct Shuffler(u64);

impl Shuffler {
    /// Creates the sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Shuffles the items (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let other = usize::try_from(self.next() % (end as u64 + 1)).unwrap_or(0);
            items.swap(end, other);
        }
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_that_were_measured() {
        let samples: Samples = (1..=100).map(f64::from).collect();
        assert_eq!(
            [samples.median(), samples.percentile(99.0), samples.max()],
            [50.0, 99.0, 100.0]
        );
        assert!(Samples::default().median().is_nan());
        assert!(Samples::from_iter([7.0]).percentile(1.0) == 7.0);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let (ours, theirs) = (Samples::from_iter([2.0, 9.0]), Samples::from_iter([1.0, 3.0]));
        assert_eq!(ours.over(&theirs).values(), [2.0, 3.0]);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Shuffler::new(1).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.into_iter().eq(0..100));
    }
}
