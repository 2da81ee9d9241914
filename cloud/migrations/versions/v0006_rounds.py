"""Rounds of learning."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_SHA256 = sa.String(64)


def upgrade() -> None:
    op.create_table(
        "rounds",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("site", sa.Text, nullable=False),
        sa.Column("condition", sa.Text, nullable=True),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("began_at", sa.DateTime, nullable=False),
        sa.Column("ended_at", sa.DateTime, nullable=True),
        sa.Column("champion_id", _SHA256, nullable=True),
        sa.Column("candidate_id", _SHA256, nullable=True),
        sa.Column("verdict", sa.Text, nullable=True),
        sa.Column("reasons", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_rounds"),
    )
    op.create_index("ix_rounds_site_began_at", "rounds", ["site", "began_at"])
    op.create_index("ix_rounds_state", "rounds", ["state"])
    op.create_table(
        "round_steps",
        sa.Column("round_id", sa.Text, nullable=False),
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("began_at", sa.DateTime, nullable=False),
        sa.Column("ended_at", sa.DateTime, nullable=True),
        sa.Column("spent_ms", sa.BigInteger, nullable=True),
        sa.Column("said", sa.Text, nullable=True),
        sa.Column("facts", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("round_id", "step", name="pk_round_steps"),
        sa.ForeignKeyConstraint(
            ["round_id"], ["rounds.id"], name="fk_round_steps_round_id", ondelete="CASCADE"
        ),
    )


def downgrade() -> None:
    for table in ("round_steps", "rounds"):
        op.drop_table(table)
