//! The Turnfast page: renders the view of client-core's thread machine and forwards what the person does. It holds no recovery
//! logic: when to read, what to send and what to keep is the machine's business.

pub mod markdown;
