-- An operator has ended the waits of a group up to this end; zero for none. So a settled group stays settled after a restart.
ALTER TABLE meta ADD COLUMN settled_us INTEGER NOT NULL DEFAULT 0;
