//! A process that takes beats.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::clock::{Clock, ManualClock};
use tenure_core::error::Result;
use tenure_core::pulse::BeatPulse;
use tenure_core::settling::PULSE_EVERY;
use tenure_core::store::Store;
use tokio::runtime::Handle;

use crate::loops::{LoopBody, LoopSettings, Loops, Turn};

/// Beats the pulse of a store, as a daemon does.
struct Beats(Arc<dyn Store>);

#[async_trait]
impl LoopBody for Beats {
    async fn turn(&mut self) -> Result<Turn> {
        self.0.beat_pulse(BeatPulse::default()).await?;
        Ok(Turn::again_in(PULSE_EVERY))
    }
}

/// Beats the pulse of a store while the loops run.
pub(crate) fn beat_pulse_of(store: Arc<dyn Store>, loops: &Loops) {
    let beats = LoopSettings::new("beats", PULSE_EVERY);
    loops.start(beats, move || Beats(Arc::clone(&store))).unwrap();
}

/// Lets another process take beats, until the loops are dropped.
pub(crate) fn served(store: &Arc<dyn Store>, clock: &Arc<ManualClock>) -> Loops {
    let loops = Loops::new(Arc::clone(clock) as Arc<dyn Clock>, Handle::current());
    beat_pulse_of(Arc::clone(store), &loops);
    loops
}
