//! When refused writes are reported: once, however often a disk that is almost full takes a few writes in between.

use std::time::Duration;

use tenure_core::StoreTime;

/// Writes must succeed for this long before the trouble counts as over.
const CALM: Duration = Duration::from_secs(60);

/// The trouble that was reported last and is not over.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<(StoreTime, String)>);

impl Alarm {
    /// Notes that writes are refused from now on. Answers whether to report it: the same reason is reported once.
    pub(crate) fn raise(&mut self, now: StoreTime, reason: &str) -> bool {
        let before = self.0.replace((now, reason.to_owned()));
        before.is_none_or(|(_, before)| before != reason)
    }

    /// Notes that a write succeeded. Answers whether to report that the trouble is over.
    pub(crate) fn calm(&mut self, now: StoreTime) -> bool {
        let is_over = |(at, _): &mut (StoreTime, String)| now.since(*at) >= CALM;
        self.0.take_if(is_over).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flapping_writes_are_one_alarm() {
        let at = |seconds| StoreTime::ZERO + Duration::from_secs(seconds);
        let mut alarm = Alarm::default();
        assert!(!alarm.calm(at(0)));
        assert!(alarm.raise(at(10), "full"));
        for second in (11..600).step_by(20) {
            assert!(!alarm.calm(at(second)));
            assert!(!alarm.raise(at(second + 1), "full"));
        }
        assert!(alarm.raise(at(610), "a sync failed"));
        assert!(!alarm.calm(at(669)));
        assert!(alarm.calm(at(670)) && !alarm.calm(at(671)));
        assert!(alarm.raise(at(672), "full"));
    }
}
