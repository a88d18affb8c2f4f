//! Leadership: is this node the primary? A source is a stream of [`tenure_core::supervise::Evidence`].
